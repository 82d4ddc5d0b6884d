// The attention block of one layer on one rank: q, k, v, their positions, the KV pages, the output
// projection.
//
// Thread-safety: immutable after loading; calls belong to the executor thread.
// Ownership: owns this rank's packed weights. Pools, activations and spans are the caller's.
// Invariants: the steps of a pass are write(), attend(), project(), in this order. After write() the KV of
//   the pass is complete in this layer, before anything is attended. Where sequences lie with several
//   coordinates, begin_across() comes after write() and attend_across() takes attend()'s place; it is
//   complete after the latter, or after receive_across() between the two.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/expected.h"
#include "kernels/attention.h"
#include "model/description.h"
#include "model/pass.h"
#include "model/weight_loader.h"
#include "parallel/context_attention.h"
#include "parallel/packed_linear.h"
#include "parallel/row_parallel.h"
#include "parallel/shard.h"
#include "tensor/kv_layout.h"
#include "tensor/matrix.h"

namespace shoal::model {

class AttentionLayer {
 public:
  // segment_counts: K segments of every rank that holds heads of this block, in order.
  static Expected<AttentionLayer> load(WeightLoader& loader, std::int32_t layer, const AttentionBlock& block,
                                       const parallel::AttentionShard& shard,
                                       const std::vector<std::int32_t>& segment_counts);

  std::int64_t qkv_width() const { return qkv_.width(); }
  // query heads of this rank * head_dim
  std::int64_t heads_width() const;
  std::size_t bytes() const { return qkv_.bytes() + output_.bytes(); }
  const AttentionBlock& block() const { return block_; }
  const parallel::PackedLinear& input_weights() const { return qkv_; }
  const parallel::RowParallel& output_weights() const { return output_; }

  // x: [rows, hidden], normed. Leaves rotated q, k and v in qkv [rows, qkv_width()] and K and V in the pool.
  void write(const Pass& pass, const KvView& pool, std::span<const kernels::AttentionSpan> spans,
             MatrixView<const float> x, MatrixView<float> qkv) const;
  // heads: [rows, heads_width()]. Rows outside the spans stay as they are.
  void attend(const Pass& pass, const KvView& pool, std::span<const kernels::AttentionSpan> spans,
              MatrixView<float> qkv, MatrixView<float> heads) const;
  // As ContextAttention says. work: all of the pass. qkv: as write() left it; no rows where this coordinate
  // computes none.
  void begin_across(parallel::ContextAttention& context, const parallel::ContextAttention::Plan& plan,
                    const ContextWork& work, MatrixView<float> qkv) const;
  void receive_across(parallel::ContextAttention& context, const KvView& pool) const;
  void attend_across(parallel::ContextAttention& context, parallel::ContextAttention::Plan& plan,
                     const KvView& pool, MatrixView<float> qkv, MatrixView<float> heads) const;
  // delta: [rows, hidden], what the block adds to the residual stream, summed over the group.
  void project(const Pass& pass, MatrixView<const float> heads, MatrixView<float> delta) const;

 private:
  AttentionLayer(const AttentionBlock& block, const parallel::AttentionShard& shard,
                 parallel::PackedLinear qkv, parallel::RowParallel output);
  Status load_vectors(WeightLoader& loader, std::int32_t layer, const parallel::AttentionShard& shard);
  kernels::AttentionShape shape() const;

  AttentionBlock block_;
  std::vector<std::int32_t> kv_head_of_;
  parallel::PackedLinear qkv_;
  parallel::RowParallel output_;
  // Empty where the model has none.
  std::vector<float> qkv_bias_;
  std::vector<float> output_bias_;
  std::vector<float> query_norm_;
  std::vector<float> key_norm_;
};

}  // namespace shoal::model
