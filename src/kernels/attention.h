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
//   6. attention_states() over a run of pages inside one segment, and fold_attention_states() of such states
//   in
//      order of position inside a segment, then of segments, give the bits of attention() over all of them.

#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "kernels/context.h"
#include "tensor/kv_layout.h"
#include "tensor/matrix.h"

namespace shoal::kernels {

inline constexpr std::int32_t kNoSlot = -1;

// The new tokens of one sequence in this step: rows [first_row, first_row + rows) of q, k, v and out, at
// positions [start, start + rows).
struct AttentionSpan {
  std::int32_t first_row = 0;
  std::int32_t rows = 0;
  std::int32_t start = 0;
  // Slot of each logical page of the sequence in this layer's KV group, at least up to start + rows or
  // page_end.
  std::span<const std::int32_t> slots;
  // Pages attended to, beside what the mask says: [page_begin, page_end). A span whose `start` lies behind
  // all of them sees each of their tokens.
  std::int32_t page_begin = 0;
  std::int32_t page_end = std::numeric_limits<std::int32_t>::max();
  // attention_states(): the first row's place in `states`.
  std::int32_t state_row = 0;
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

// Values of one row of states: for each query head the running maximum (log2 units), then for each the sum of
// 2^(score - maximum), then for each head_dim weighted values. A head that has seen nothing: -inf, 0, zeros.
constexpr std::int64_t state_width(std::int32_t query_heads, std::int32_t head_dim) {
  return static_cast<std::int64_t>(query_heads) * (head_dim + 2);
}

// As attention(), but gives what the spans' pages alone say, for fold_attention_states(). states: rows of
// state_width(), by AttentionSpan::state_row. Several spans may name the same rows of q.
void attention_states(const Context& context, const KvView& pool, const AttentionShape& shape,
                      std::span<const AttentionSpan> spans, MatrixView<const float> q,
                      MatrixView<float> states);

// Row by row: into takes in from.
void fold_attention_states(const Context& context, const AttentionShape& shape, MatrixView<float> into,
                           MatrixView<const float> from);
// Rows that have seen nothing.
void clear_attention_states(const AttentionShape& shape, MatrixView<float> states);
// out: [rows, query_heads * head_dim], what attention() gives where `states` holds all.
void finish_attention_states(const Context& context, const AttentionShape& shape,
                             MatrixView<const float> states, MatrixView<float> out);

// A shorter form, in which the default mode sends states: for each query head the logarithm (base 2) of its
// sum, then for each head_dim values divided by it.
constexpr std::int64_t packed_state_width(std::int32_t query_heads, std::int32_t head_dim) {
  return static_cast<std::int64_t>(query_heads) * (head_dim + 1);
}
void pack_attention_states(const Context& context, const AttentionShape& shape,
                           MatrixView<const float> states, MatrixView<float> packed);
void unpack_attention_states(const Context& context, const AttentionShape& shape,
                             MatrixView<const float> packed, MatrixView<float> states);

}  // namespace shoal::kernels
