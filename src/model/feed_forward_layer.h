// The dense feed-forward block of one layer on one rank: gate and up, activation, down.
//
// Thread-safety: immutable after loading; calls belong to the executor thread.
// Ownership: owns this rank's packed weights; activations are the caller's.

#pragma once

#include <cstdint>
#include <vector>

#include "core/expected.h"
#include "model/description.h"
#include "model/pass.h"
#include "model/weight_loader.h"
#include "parallel/packed_linear.h"
#include "parallel/row_parallel.h"
#include "parallel/shard.h"
#include "tensor/matrix.h"

namespace shoal::model {

class FeedForwardLayer {
 public:
  // segment_counts: K segments of every rank that holds columns of this block, in order.
  static Expected<FeedForwardLayer> load(WeightLoader& loader, std::int32_t layer,
                                         const FeedForwardBlock& block,
                                         const parallel::FeedForwardShard& shard,
                                         const std::vector<std::int32_t>& segment_counts);

  // Columns of the scratch that apply() needs.
  std::int64_t gate_up_width() const { return gate_up_.width(); }
  std::size_t bytes() const { return gate_up_.bytes() + down_.bytes(); }
  const parallel::PackedLinear& input_weights() const { return gate_up_; }
  const parallel::RowParallel& output_weights() const { return down_; }

  // x: [rows, hidden], normed; gate_up: [rows, gate_up_width()], scratch; delta: [rows, hidden], what the
  // block adds to the residual stream, summed over the group.
  void apply(const Pass& pass, MatrixView<const float> x, MatrixView<float> gate_up,
             MatrixView<float> delta) const;

 private:
  FeedForwardLayer(const FeedForwardBlock& block, parallel::PackedLinear gate_up, parallel::RowParallel down);

  FeedForwardBlock block_;
  parallel::PackedLinear gate_up_;
  parallel::RowParallel down_;
};

}  // namespace shoal::model
