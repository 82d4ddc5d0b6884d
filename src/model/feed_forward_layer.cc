#include "model/feed_forward_layer.h"

#include <fmt/format.h>

#include <utility>

#include "kernels/feed_forward.h"

namespace shoal::model {

FeedForwardLayer::FeedForwardLayer(const FeedForwardBlock& block, parallel::PackedLinear gate_up,
                                   parallel::RowParallel down)
    : block_(block), gate_up_(std::move(gate_up)), down_(std::move(down)) {}

Expected<FeedForwardLayer> FeedForwardLayer::load(WeightLoader& loader, std::int32_t layer,
                                                  const FeedForwardBlock& block,
                                                  const parallel::FeedForwardShard& shard,
                                                  const std::vector<std::int32_t>& segment_counts) {
  SHOAL_ASSIGN(gate_up,
               loader.column_parallel({{fmt::format("blk.{}.ffn_gate.weight", layer), shard.columns},
                                       {fmt::format("blk.{}.ffn_up.weight", layer), shard.columns}}));
  SHOAL_ASSIGN(down, loader.row_parallel(fmt::format("blk.{}.ffn_down.weight", layer), shard.columns,
                                         shard.segment_ends, segment_counts));
  return FeedForwardLayer(block, std::move(gate_up), std::move(down));
}

void FeedForwardLayer::apply(const Pass& pass, MatrixView<const float> x, MatrixView<float> gate_up,
                             MatrixView<float> delta) const {
  const kernels::PackedMatrix* both = gate_up_.whole();
  const kernels::PackedMatrix* down = down_.whole();
  if (both != nullptr && down != nullptr &&
      kernels::takes_feed_forward({*both, *down, block_.activation}, x.rows)) {
    kernels::feed_forward(pass.kernels, pass.matmul, {*both, *down, block_.activation}, x, delta);
    down_.sum(delta, pass.peers);
    return;
  }
  gate_up_.apply(pass.kernels, pass.matmul, x, gate_up);
  const MatrixView<float> gate = gate_up_.part(gate_up, 0);
  kernels::gated_activation(pass.kernels, block_.activation, gate, gate_up_.part(gate_up, 1), gate);
  down_.apply(pass.kernels, pass.matmul, gate, delta, pass.peers);
}

}  // namespace shoal::model
