// The arithmetic of attention over one page, written once over a vector type (vec_*.h) and a pool type.
//
// Thread-safety: pure functions on what they are given.
// Invariants:
//   1. A score adds its products over the head's dimensions in order, from zero; a value sum adds its tokens
//      likewise; a page's l is one fixed tree over its 32 weights, zeros where masked. Register blocking
//      changes none of these.
//   2. Tokens a row does not see reach none of its sums, not even as 0 * x: a stale page may hold NaN.

#pragma once

#include <cstdint>

#include "kernels/attention_kernels.h"
#include "kernels/exp_inl.h"
#include "tensor/kv_layout.h"

namespace shoal::kernels {
namespace {  // each including file has its own copy, built with its own flags

// Rows that share one expanded vector of keys or values. 8 rows x 2 vectors = 16 of the 32 AVX-512 registers
// for sums; AVX2 has 16 in all and takes 4 rows.
inline constexpr int kMaxGroupRows = 8;
template <typename V>
inline constexpr int kGroupRows = V::kWidth == 8 ? 4 : kMaxGroupRows;

// Which tokens of a page each row of a group sees.
struct PageMask {
  std::uint32_t bits[kMaxGroupRows];  // bit t: row sees token t
  std::int32_t any_begin = 0;         // tokens some row sees
  std::int32_t any_end = 0;
  std::int32_t all_begin = 0;  // tokens every row sees, in whole pairs; may be empty
  std::int32_t all_end = 0;
  bool whole = false;  // every row sees every token
};

// tokens [begin, end) as bits; begin < end <= 32.
inline std::uint32_t token_bits(std::int32_t begin, std::int32_t end) {
  return (0xffffffffU << begin) & (0xffffffffU >> (32 - end));
}

inline PageMask page_mask(const std::int32_t* positions, int rows, std::int32_t page, std::int32_t window) {
  PageMask mask;
  const std::int32_t start = page * kPageTokens;
  std::int32_t all_begin = 0;
  std::int32_t all_end = kPageTokens;
  mask.any_begin = kPageTokens;
  for (int r = 0; r < rows; ++r) {
    std::int32_t end = positions[r] + 1 - start;
    std::int32_t begin = window > 0 ? end - window : 0;
    end = end > kPageTokens ? kPageTokens : end;
    begin = begin < 0 ? 0 : begin;
    mask.bits[r] = begin < end ? token_bits(begin, end) : 0;
    if (begin < end) {
      mask.any_begin = begin < mask.any_begin ? begin : mask.any_begin;
      mask.any_end = end > mask.any_end ? end : mask.any_end;
    } else {
      all_end = 0;
    }
    all_begin = begin > all_begin ? begin : all_begin;
    all_end = end < all_end ? end : all_end;
  }
  mask.whole = all_begin == 0 && all_end == kPageTokens;
  mask.all_begin = (all_begin + 1) & ~1;
  mask.all_end = all_end & ~1;
  if (mask.all_begin >= mask.all_end) mask.all_begin = mask.all_end = mask.any_end;
  return mask;
}

// scores[r][t] = q[r] . k[t] for the 32 tokens of a K tile. q: [head_dim / 2][kGroupRows][2]. ahead: a tile
// to fetch meanwhile, or null.
template <typename V, typename T, int R>
inline void score_tokens(const float* q, std::int32_t head_dim, const T* k, const T* ahead,
                         float (*scores)[kPageTokens]) {
  using F = typename V::F;
  constexpr int kStep = 2 * V::kWidth;
  for (int t = 0; t < kPageTokens; t += kStep) {
    F sums[R][2];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sums[r][0] = sums[r][1] = V::zero();
    const T* tile = k + 2 * t;
    const float* pair = q;
    for (std::int32_t d = 0; d < head_dim; d += 2, tile += 2 * kPageTokens, pair += 2 * kGroupRows<V>) {
      F even[2];
      F odd[2];
      V::load_pairs(tile, even[0], odd[0]);
      V::load_pairs(tile + kStep, even[1], odd[1]);
      if (ahead != nullptr && t == 0) {
        constexpr int kLine = 64 / sizeof(T);
#pragma GCC unroll 4
        for (int i = 0; i < 2 * kPageTokens; i += kLine) V::prefetch(ahead + d * kPageTokens + i);
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const F x = V::set(pair[2 * r]);
        const F y = V::set(pair[2 * r + 1]);
        sums[r][0] = V::fma(x, even[0], sums[r][0]);
        sums[r][1] = V::fma(x, even[1], sums[r][1]);
        sums[r][0] = V::fma(y, odd[0], sums[r][0]);
        sums[r][1] = V::fma(y, odd[1], sums[r][1]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      V::store(scores[r] + t, sums[r][0]);
      V::store(scores[r] + t + V::kWidth, sums[r][1]);
    }
  }
}

// scores become softcapped scores in log2 units.
template <typename V, int R>
inline void cap_scores(float cap_log2, float (*scores)[kPageTokens]) {
  for (int r = 0; r < R; ++r) {
    for (int t = 0; t < kPageTokens; t += V::kWidth) {
      V::store(scores[r] + t, V::mul(V::set(cap_log2), tanh_of<V>(V::load(scores[r] + t))));
    }
  }
}

// Turns scores into weights relative to each row's maximum over the page; m, l: [16], of the page. A row that
// sees nothing gets -inf, 0 and weights of zero.
template <typename V, int R, bool kWhole>
inline void weigh_tokens(const PageMask& mask, float (*scores)[kPageTokens], float* m, float* l) {
  using F = typename V::F;
  constexpr int kVectors = kPageTokens / V::kWidth;
  const F lowest = V::set(-__builtin_inff());
  F row[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    row[r] = lowest;
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      F s = V::load(scores[r] + i * V::kWidth);
      if (!kWhole) {
        s = V::select(V::mask(mask.bits[r] >> (i * V::kWidth)), s, lowest);
        V::store(scores[r] + i * V::kWidth, s);
      }
      row[r] = V::max(row[r], s);
    }
  }
  V::template max_of_rows<R>(row, m);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const F base = V::set(m[r]);
    row[r] = V::zero();
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      F p = exp2_of<V>(V::sub(V::load(scores[r] + i * V::kWidth), base));
      if (!kWhole) p = V::select(V::mask(mask.bits[r] >> (i * V::kWidth)), p, V::zero());
      V::store(scores[r] + i * V::kWidth, p);
      row[r] = V::add(row[r], p);
    }
  }
  V::template add_of_rows<R>(row, l);
}

// Joins the sums of up to 16 rows: where bit r of `seen` is set, (m, l) take in (from_m, from_l), and what
// was summed under either maximum counts keep and gain times from now on (one of the two is exactly 1).
template <typename V>
inline void fold_sums(int rows, std::uint32_t seen, float* m, float* l, const float* from_m,
                      const float* from_l, float* keep, float* gain) {
  for (int i = 0; i < rows; i += V::kWidth) {
    const int n = rows - i;
    const auto old_m = V::load_first(m + i, n);
    const auto old_l = V::load_first(l + i, n);
    const auto new_m = V::load_first(from_m + i, n);
    const auto joint = V::max(old_m, new_m);
    const auto a = exp2_of<V>(V::sub(old_m, joint));
    const auto b = exp2_of<V>(V::sub(new_m, joint));
    const auto sum = V::fma(old_l, a, V::mul(V::load_first(from_l + i, n), b));
    const auto take = V::mask(seen >> i);
    V::store_first(m + i, V::select(take, joint, old_m), n);
    V::store_first(l + i, V::select(take, sum, old_l), n);
    V::store_first(keep + i, a, n);
    V::store_first(gain + i, b, n);
  }
}

// o[r] = o[r] * keep[r] + (weights[r] . v) * gain[r] for N vectors of dimensions from `dim` on, of which
// `left` exist (all where kWhole).
template <typename V, typename T, int R, int N, bool kWhole>
inline void add_values(const float (*weights)[kPageTokens], const PageMask& mask, const float* keep,
                       const float* gain, std::int32_t head_dim, std::int32_t dim, int left, const T* v,
                       const T* ahead, float* o) {
  using F = typename V::F;
  F sums[R][N];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int i = 0; i < N; ++i) sums[r][i] = V::zero();
  }
  const T* tile = v + 2 * dim;
  F even[N];
  F odd[N];
  auto load_token_pair = [&](int pair) {
    const T* p = tile + static_cast<std::int64_t>(pair) * 2 * head_dim;
#pragma GCC unroll 2
    for (int i = 0; i < N; ++i) {
      if constexpr (kWhole) {
        V::load_pairs(p + 2 * i * V::kWidth, even[i], odd[i]);
      } else {
        V::load_pairs_first(p + 2 * i * V::kWidth, left - i * V::kWidth, even[i], odd[i]);
      }
    }
  };
  auto add_token = [&](int t) {  // at the edges, where rows differ in what they see
    load_token_pair(t / 2);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      if (((mask.bits[r] >> t) & 1U) == 0) continue;
      const F w = V::set(weights[r][t]);
#pragma GCC unroll 2
      for (int i = 0; i < N; ++i) sums[r][i] = V::fma(w, (t & 1) == 0 ? even[i] : odd[i], sums[r][i]);
    }
  };
  for (int t = mask.any_begin; t < mask.all_begin; ++t) add_token(t);
  for (int t = mask.all_begin; t < mask.all_end; t += 2) {
    load_token_pair(t / 2);
    if (ahead != nullptr) {
      constexpr int kLine = 64 / sizeof(T);
      const T* p = ahead + 2 * dim + static_cast<std::int64_t>(t) * head_dim;
#pragma GCC unroll 4
      for (int i = 0; i < 2 * N * V::kWidth; i += kLine) V::prefetch(p + i);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const F x = V::set(weights[r][t]);
      const F y = V::set(weights[r][t + 1]);
#pragma GCC unroll 2
      for (int i = 0; i < N; ++i) sums[r][i] = V::fma(x, even[i], sums[r][i]);
#pragma GCC unroll 2
      for (int i = 0; i < N; ++i) sums[r][i] = V::fma(y, odd[i], sums[r][i]);
    }
  }
  for (int t = mask.all_end; t < mask.any_end; ++t) add_token(t);

#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    if (mask.bits[r] == 0) continue;
    const F a = V::set(keep[r]);
    const F b = V::set(gain[r]);
#pragma GCC unroll 2
    for (int i = 0; i < N; ++i) {
      float* p = o + r * head_dim + dim + i * V::kWidth;
      if constexpr (kWhole) {
        V::store(p, V::fma(V::load(p), a, V::mul(sums[r][i], b)));
      } else {
        const int n = left - i * V::kWidth;
        V::store_first(p, V::fma(V::load_first(p, n), a, V::mul(sums[r][i], b)), n);
      }
    }
  }
}

template <typename V, typename T, int R>
void fold_page(const AttentionBlock& block, int row, std::int32_t page, const T* k, const T* v,
               const T* k_ahead, const T* v_ahead, AttentionState state) {
  const PageMask mask = page_mask(block.positions + row, R, page, block.window);
  if (mask.any_begin >= mask.any_end) return;
  const std::int32_t d = block.head_dim;
  alignas(64) float scores[R][kPageTokens];
  constexpr int kRows = kGroupRows<V>;
  const float* q = block.q + static_cast<std::int64_t>(row / kRows) * kRows * d + 2 * (row % kRows);
  score_tokens<V, T, R>(q, d, k, k_ahead, scores);
  if (block.cap_log2 != 0) cap_scores<V, R>(block.cap_log2, scores);
  alignas(64) float m[16];
  alignas(64) float l[16];
  if (mask.whole) {
    weigh_tokens<V, R, true>(mask, scores, m, l);
  } else {
    weigh_tokens<V, R, false>(mask, scores, m, l);
  }
  std::uint32_t seen = 0;
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    if (mask.bits[r] != 0) seen |= 1U << r;
  }
  alignas(64) float keep[16];
  alignas(64) float gain[16];
  fold_sums<V>(R, seen, state.m + row, state.l + row, m, l, keep, gain);
  float* o = state.o + static_cast<std::int64_t>(row) * d;
  std::int32_t dim = 0;
  for (; dim + 2 * V::kWidth <= d; dim += 2 * V::kWidth) {
    add_values<V, T, R, 2, true>(scores, mask, keep, gain, d, dim, 0, v, v_ahead, o);
  }
  for (; dim < d; dim += V::kWidth) {
    add_values<V, T, R, 1, false>(scores, mask, keep, gain, d, dim, d - dim, v, v_ahead, o);
  }
}

template <int R>
struct RowCount {
  constexpr int operator()() const { return R; }
};

// f(RowCount<n>) with the most rows <= `rows` that has code of its own (each costs some 6 KiB of code): every
// number, because rows that need two turns widen keys and values twice. Gives n.
template <int kMost, typename F>
inline int with_rows(int rows, F&& f) {
  if constexpr (kMost > 1) {
    if (rows < kMost) return with_rows<kMost - 1>(rows, f);
  }
  f(RowCount<kMost>{});
  return kMost;
}

template <typename V, typename T>
void fold_pages(const AttentionBlock& block, std::int32_t page_begin, std::int32_t page_end,
                AttentionState state) {
  constexpr int kRows = kGroupRows<V>;
  // Into L2: two threads then read 25 GB/s of a context of 16k tokens, in any order of pages, and 1 to 16
  // pages ahead do equally well. Into L1, whose fills are 16 at a time, it was 18 GB/s at two pages and less
  // at eight.
  constexpr int kAhead = 4;
  auto tile = [&](const KvPages& run, const std::byte* slab, std::int32_t page) {
    const auto slot = static_cast<std::size_t>(run.slots[page]);
    return reinterpret_cast<const T*>(slab + slot * block.tile_bytes);
  };
  for (std::int32_t page = page_begin; page < page_end; ++page) {
    const T* k = tile(block.pages, block.pages.k_slab, page);
    const T* v = tile(block.pages, block.pages.v_slab, page);
    const T* k_ahead = nullptr;
    const T* v_ahead = nullptr;
    const KvPages& run = page + kAhead < block.pages.end ? block.pages : block.after;
    const std::int32_t ahead =
        page + kAhead < block.pages.end ? page + kAhead : run.begin + page + kAhead - block.pages.end;
    if (ahead < run.end) {
      k_ahead = tile(run, run.k_slab, ahead);
      v_ahead = tile(run, run.v_slab, ahead);
    }
    for (int row = 0; row < block.rows;) {
      row += with_rows<kRows>(block.rows - row, [&](auto count) {
        fold_page<V, T, count()>(block, row, page, k, v, k_ahead, v_ahead, state);
      });
      k_ahead = v_ahead = nullptr;  // asked for once
    }
  }
}

template <typename V>
void fold_states(std::int32_t rows, std::int32_t head_dim, AttentionState into, AttentionState from) {
  for (std::int32_t row = 0; row < rows; row += 16) {
    const int n = rows - row < 16 ? rows - row : 16;
    // Its sum is zero only where a row saw nothing: the maximum's own weight is 1. A NaN sum is not empty.
    std::uint32_t seen = 0;
    for (int r = 0; r < n; ++r) {
      if (!(from.l[row + r] == 0)) seen |= 1U << r;
    }
    float keep[16];
    float gain[16];
    fold_sums<V>(n, seen, into.m + row, into.l + row, from.m + row, from.l + row, keep, gain);
    for (int r = 0; r < n; ++r) {
      if (((seen >> r) & 1U) == 0) continue;
      float* a = into.o + static_cast<std::int64_t>(row + r) * head_dim;
      const float* b = from.o + static_cast<std::int64_t>(row + r) * head_dim;
      for (std::int32_t d = 0; d < head_dim; d += V::kWidth) {
        const int left = head_dim - d;
        const auto x = V::mul(V::load_first(b + d, left), V::set(gain[r]));
        V::store_first(a + d, V::fma(V::load_first(a + d, left), V::set(keep[r]), x), left);
      }
    }
  }
}

template <typename V>
void round_to_bf16(const float* x, std::int64_t n, Bf16* out) {
  std::int64_t i = 0;
  for (; i + V::kWidth <= n; i += V::kWidth) V::store_bf16(out + i, V::load(x + i));
  for (; i < n; ++i) out[i] = f32_to_bf16(x[i]);
}

template <typename V>
constexpr AttentionKernels make_attention_kernels() {
  return {kGroupRows<V>, fold_pages<V, Bf16>, fold_pages<V, float>, fold_states<V>, round_to_bf16<V>};
}

}  // namespace
}  // namespace shoal::kernels
