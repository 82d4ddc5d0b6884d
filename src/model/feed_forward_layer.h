// The dense feed-forward block of one layer on one rank: gate and up, activation, down.
//
// Thread-safety: immutable after loading; calls belong to the executor thread.
// Ownership: owns this rank's packed weights; activations are the caller's.

#pragma once

#include <cstdint>

#include "core/expected.h"
#include "layout/layout.h"
#include "model/description.h"
#include "model/pass.h"
#include "model/weight_loader.h"
#include "parallel/packed_linear.h"
#include "parallel/shard.h"
#include "tensor/matrix.h"

namespace shoal::model {

class FeedForwardLayer {
 public:
  // group: the ranks that hold the other columns of this block.
  static Expected<FeedForwardLayer> load(WeightLoader& loader, std::int32_t layer,
                                         const FeedForwardBlock& block,
                                         const parallel::FeedForwardShard& shard, Group group);

  // Columns of the scratch that apply() needs.
  std::int64_t gate_up_width() const { return gate_up_.width(); }
  std::size_t bytes() const { return gate_up_.bytes() + down_.bytes(); }
  const parallel::PackedLinear& input_weights() const { return gate_up_; }
  const parallel::PackedLinear& output_weights() const { return down_; }

  // x: [rows, hidden], normed; gate_up: [rows, gate_up_width()], scratch; delta: [rows, hidden], what the
  // block adds to the residual stream, summed over the group.
  void apply(const Pass& pass, MatrixView<const float> x, MatrixView<float> gate_up,
             MatrixView<float> delta) const;

 private:
  FeedForwardLayer(const FeedForwardBlock& block, Group group, parallel::PackedLinear gate_up,
                   parallel::PackedLinear down);

  FeedForwardBlock block_;
  Group group_;
  parallel::PackedLinear gate_up_;
  parallel::PackedLinear down_;
};

}  // namespace shoal::model
