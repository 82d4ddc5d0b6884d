// Attention over paged KV: writing new keys and values, and attending with new queries, in prefill and decode
// alike.
//
// Thread-safety: calls run on the context's pool and belong to one executor thread.
// Ownership: none; the pools belong to the rank's KV store.
// Invariants:
//   1. K and V are read from the pool only, after rounding to its type.
//   2. In strict mode, with a pool of f32 and with Activations::kF32 each page gives one (m, l, o) per query
//      row and head: running maximum, sum, weighted values. Pages fold left to right inside each 256-position
//      segment, segments then left to right. So the bits of a row do not depend on batch, chunking, threads
//      or where pages lie.
//   3. Otherwise many keys are taken at a time, and in what order depends on how many rows a span has and how
//      the work is dealt: the same call on as many threads gives the same bits, no more is promised. AVX2 and
//      AVX-512 compute in f32 all the same (within 2e-5 of exact for values of order 1); AMX rounds queries
//      and weights to bf16.
//   4. What the mask excludes is skipped, not computed: pages behind a sliding window are never touched and
//      their slot may be kNoSlot. No token reaches a row that does not see it, not even as 0 * NaN.
//   5. A row that sees nothing gives zeros, never NaN.

#pragma once

#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "tensor/kv_layout.h"
#include "tensor/matrix.h"

namespace shoal::kernels {

inline constexpr std::int32_t kNoSlot = -1;
// Positions whose pages fold together before segments fold with each other: 8 pages.
inline constexpr std::int32_t kAttentionSegment = 256;

// The new tokens of one sequence in this step: rows [first_row, first_row + rows) of q, k, v and out, at
// positions [start, start + rows).
struct AttentionSpan {
  std::int32_t first_row = 0;
  std::int32_t rows = 0;
  std::int32_t start = 0;
  // Slot of each logical page of the sequence in this layer's KV group, at least up to start + rows.
  std::span<const std::int32_t> slots;
};

struct AttentionShape {
  std::int32_t layer = 0;  // index inside the KV group
  std::int32_t head_dim = 0;
  std::int32_t query_heads = 0;
  // KV head (of this rank) that each query head reads, ascending; size query_heads.
  std::span<const std::int32_t> kv_head_of;
  float scale = 0;          // 1 / sqrt(head_dim) unless the model says otherwise
  float softcap = 0;        // scores become softcap * tanh(score / softcap); 0: none
  std::int32_t window = 0;  // a query at p sees keys in (p - window, p]; 0: all up to p
};

// k, v: [rows, kv_heads * head_dim] f32, k after rope. Rounds to the pool's type.
void write_kv(const Context& context, const KvView& pool, const AttentionShape& shape,
              std::span<const AttentionSpan> spans, MatrixView<const float> k, MatrixView<const float> v);

// q, out: [rows, query_heads * head_dim] f32, q after rope. The spans' own new keys must have been written.
void attention(const Context& context, const KvView& pool, const AttentionShape& shape,
               std::span<const AttentionSpan> spans, MatrixView<const float> q, MatrixView<float> out);

}  // namespace shoal::kernels
