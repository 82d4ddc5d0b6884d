// What an instruction set provides for attention: folding pages of one KV head into the running state of a
// block of query rows. attention.cc plans and deals the blocks; attention_inl.h is the exact arithmetic,
// attention_chunks_inl.h and attention_tiles_avx512bf16.h are the chunked one.
//
// Thread-safety: the tables are constant; functions touch only what they are given.
// Invariants: rows share no sums. AttentionKernels: a row's bits depend on its query, the keys and values it
//   sees and the ISA. ChunkedAttention: also on the pages of each call and on how many rows there are.

#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/isa.h"
#include "tensor/half.h"

namespace shoal::kernels {

// Pages [begin, end) of a sequence in one layer and KV head.
struct KvPages {
  const std::byte* k_slab = nullptr;  // of this layer and KV head
  const std::byte* v_slab = nullptr;
  const std::int32_t* slots = nullptr;  // by logical page of the sequence
  std::int32_t begin = 0;
  std::int32_t end = 0;
};

// Query rows of one KV head. A row is one query head at one token.
struct AttentionBlock {
  // Times scale (below), in groups of AttentionKernels::group_rows: [groups][head_dim / 2][group_rows][2].
  const float* q = nullptr;
  const std::int32_t* positions = nullptr;  // [rows], ascending
  std::int32_t rows = 0;
  std::int32_t head_dim = 0;
  KvPages pages;  // others are not read, nor prefetched
  KvPages after;  // what this thread is likely to read next; may be empty
  std::size_t tile_bytes = 0;
  std::int32_t window = 0;
  // Scores are kept in units of log2, so that weights are plain powers of two: q carries scale * log2(e).
  // With a softcap q carries scale / softcap instead and scores become cap_log2 * tanh(q . k).
  float cap_log2 = 0;
};

// Per row: running maximum (log2 units), sum of 2^(score - maximum), weighted values. Empty: -inf, 0, zeros.
struct AttentionState {
  float* m = nullptr;  // [rows]
  float* l = nullptr;  // [rows]
  float* o = nullptr;  // [rows][head_dim]
};

// States of so many rows side by side, from p on.
inline AttentionState state_at(float* p, std::int32_t rows) { return {p, p + rows, p + 2 * rows}; }

// What a row that has seen all of its keys comes to.
inline void normalise_row(const float* o, float l, std::int32_t head_dim, float* out) {
  const float inverse = l == 0 ? 0.0F : 1.0F / l;
  for (std::int32_t i = 0; i < head_dim; ++i) out[i] = o[i] * inverse;
}

struct AttentionKernels {
  // Rows that share an expanded vector of keys or values.
  std::int32_t group_rows;
  // Folds pages [page_begin, page_end) into state, left to right.
  void (*fold_pages_bf16)(const AttentionBlock& block, std::int32_t page_begin, std::int32_t page_end,
                          AttentionState state);
  void (*fold_pages_f32)(const AttentionBlock& block, std::int32_t page_begin, std::int32_t page_end,
                         AttentionState state);
  // into = into folded with from, row by row; a row of `from` that is empty leaves `into` as it was.
  void (*fold_states)(std::int32_t rows, std::int32_t head_dim, AttentionState into, AttentionState from);
  // out[0 .. n) = x[0 .. n) rounded to bf16.
  void (*round_to_bf16)(const float* x, std::int64_t n, Bf16* out);
};

// Query rows of one KV head of one sequence against a run of its pages. Row i is query head i % group of the
// group at token i / group.
struct AttentionRows {
  const float* q = nullptr;   // of token 0 and the group's first head; its heads lie head_dim apart
  std::int64_t q_stride = 0;  // floats from token to token
  std::int32_t group = 0;
  std::int32_t first_row = 0;
  std::int32_t rows = 0;
  std::int32_t start = 0;  // position of token 0
  std::int32_t head_dim = 0;
  float q_factor = 0;  // q's, so that scores are what AttentionBlock says
  float cap_log2 = 0;  // as AttentionBlock
  std::int32_t window = 0;
  KvPages pages;
  KvPages after;
  std::size_t tile_bytes = 0;

  std::int32_t position(std::int32_t row) const { return start + (first_row + row) / group; }
};

// Attention over many keys at a time, for bf16 pools: the default mode's.
struct ChunkedAttention {
  bool (*takes_head_dim)(std::int32_t head_dim);
  // Of one KV head and sequence. With fewer, folding page by page is as fast.
  std::int32_t least_rows;
  // Rows for whose work reading a page from memory takes as long.
  std::int32_t rows_per_read;
  std::size_t (*workspace_bytes)(std::int32_t rows, std::int32_t head_dim);
  // The rows' state over those pages, not added to an earlier one. Where out is not null, it gets o / l
  // instead, laid out as q is, and `state` is not touched. workspace: 64-byte aligned.
  // False, with nothing written, where a value that only some of the rows see is not finite: a product with a
  // weight of zero would bring it to the others.
  bool (*fold_rows)(const AttentionRows& rows, std::byte* workspace, AttentionState state, float* out,
                    std::int64_t out_stride);
};

const AttentionKernels& attention_kernels(Isa isa);
// Null where the instruction set has none.
const ChunkedAttention* chunked_attention(Isa isa);

// Null where this program has no code for it.
const ChunkedAttention* amx_attention();

extern const AttentionKernels kAttentionScalar;
extern const AttentionKernels kAttentionAvx2;
extern const AttentionKernels kAttentionAvx512;
extern const ChunkedAttention kChunkedAvx2;
extern const ChunkedAttention kChunkedAvx512;

}  // namespace shoal::kernels
