// What an instruction set provides for attention: folding pages of one KV head into the running state of a
// block of query rows. attention.cc plans and deals the blocks; attention_inl.h is the arithmetic.
//
// Thread-safety: the tables are constant; functions touch only what they are given.
// Invariants: a row's bits depend on its query, the keys and values it sees and the ISA. Rows share no sums.

#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/isa.h"
#include "tensor/half.h"

namespace shoal::kernels {

// Query rows of one KV head. A row is one query head at one token.
struct AttentionBlock {
  // Times scale (below), in groups of AttentionKernels::group_rows: [groups][head_dim / 2][group_rows][2].
  const float* q = nullptr;
  const std::int32_t* positions = nullptr;  // [rows], ascending
  std::int32_t rows = 0;
  std::int32_t head_dim = 0;
  const std::byte* k_slab = nullptr;  // of this layer and KV head
  const std::byte* v_slab = nullptr;
  std::size_t tile_bytes = 0;
  const std::int32_t* slots = nullptr;  // by logical page of the sequence
  std::int32_t page_end = 0;            // pages from here on are not read, nor prefetched
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

const AttentionKernels& attention_kernels(Isa isa);

extern const AttentionKernels kAttentionScalar;
extern const AttentionKernels kAttentionAvx2;
extern const AttentionKernels kAttentionAvx512;

}  // namespace shoal::kernels
