// The arithmetic of attention over one page, written once over a vector type (vec_*.h) and a pool type.
//
// Thread-safety: pure functions on what they are given.
// Invariants:
//   1. A score adds its products over the head's dimensions in order, from zero; a value sum adds its tokens
//   in
//      order, from zero; a page's l is one fixed tree over its 32 weights, zeros where masked. Register
//      blocking changes none of these.
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

// scores[r][t] = q[r] . k[t] for the 32 tokens of a K tile. ahead: a tile to fetch meanwhile, or null.
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
    for (std::int32_t d = 0; d < head_dim; d += 2, tile += 2 * kPageTokens) {
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
        const F x = V::set(q[r * head_dim + d]);
        const F y = V::set(q[r * head_dim + d + 1]);
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

// Turns a row's scores into weights relative to the page's maximum; m and l of the page for this row.
template <typename V>
inline void weigh_tokens(std::uint32_t bits, float cap_log2, float* scores, float& m, float& l) {
  using F = typename V::F;
  constexpr int kVectors = kPageTokens / V::kWidth;
  const bool whole = bits == 0xffffffffU;
  F best = V::set(-__builtin_inff());
  for (int i = 0; i < kVectors; ++i) {
    F s = V::load(scores + i * V::kWidth);
    if (cap_log2 != 0) s = V::mul(V::set(cap_log2), tanh_of<V>(s));
    if (!whole) s = V::select(V::mask(bits >> (i * V::kWidth)), s, V::set(-__builtin_inff()));
    V::store(scores + i * V::kWidth, s);
    best = V::max(best, s);
  }
  m = V::reduce_max(best);
  F sum = V::zero();
  const F base = V::set(m);
  for (int i = 0; i < kVectors; ++i) {
    F p = exp2_of<V>(V::sub(V::load(scores + i * V::kWidth), base));
    if (!whole) p = V::select(V::mask(bits >> (i * V::kWidth)), p, V::zero());
    V::store(scores + i * V::kWidth, p);
    sum = V::add(sum, p);
  }
  l = V::reduce_add(sum);
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

// How two partial sums join: into * keep + from * gain, one of the factors being exactly 1.
struct FoldFactors {
  float keep;
  float gain;
};

template <typename V>
inline FoldFactors fold_sums(float& m, float& l, float from_m, float from_l) {
  const float joint = m > from_m ? m : from_m;
  float pair[16] = {m - joint, from_m - joint};
  for (int i = 0; i < 2; i += V::kWidth) V::store(pair + i, exp2_of<V>(V::load(pair + i)));
  m = joint;
  l = l * pair[0] + from_l * pair[1];
  return {pair[0], pair[1]};
}

template <typename V, typename T, int R>
void fold_page(const AttentionBlock& block, int row, std::int32_t page, const T* k, const T* v,
               const T* k_ahead, const T* v_ahead, AttentionState state) {
  const PageMask mask = page_mask(block.positions + row, R, page, block.window);
  if (mask.any_begin >= mask.any_end) return;
  const std::int32_t d = block.head_dim;
  alignas(64) float scores[R][kPageTokens];
  score_tokens<V, T, R>(block.q + static_cast<std::int64_t>(row) * d, d, k, k_ahead, scores);
  float keep[R];
  float gain[R];
  for (int r = 0; r < R; ++r) {
    if (mask.bits[r] == 0) continue;
    float m;
    float l;
    weigh_tokens<V>(mask.bits[r], block.cap_log2, scores[r], m, l);
    const FoldFactors factors = fold_sums<V>(state.m[row + r], state.l[row + r], m, l);
    keep[r] = factors.keep;
    gain[r] = factors.gain;
  }
  float* o = state.o + static_cast<std::int64_t>(row) * d;
  std::int32_t dim = 0;
  for (; dim + 2 * V::kWidth <= d; dim += 2 * V::kWidth) {
    add_values<V, T, R, 2, true>(scores, mask, keep, gain, d, dim, 0, v, v_ahead, o);
  }
  for (; dim < d; dim += V::kWidth) {
    add_values<V, T, R, 1, false>(scores, mask, keep, gain, d, dim, d - dim, v, v_ahead, o);
  }
}

template <typename V, typename T>
void fold_pages(const AttentionBlock& block, std::int32_t page_begin, std::int32_t page_end,
                AttentionState state) {
  constexpr int kRows = V::kWidth == 8 ? 4 : kMaxGroupRows;
  // Two pages ahead: 16 KiB of keys and values at head size 64, what a core has in flight from DRAM; further
  // is slower (measured).
  constexpr int kAhead = 2;
  auto tile = [&](const std::byte* slab, std::int32_t page) {
    const auto slot = static_cast<std::size_t>(block.slots[page]);
    return reinterpret_cast<const T*>(slab + slot * block.tile_bytes);
  };
  for (std::int32_t page = page_begin; page < page_end; ++page) {
    const T* k = tile(block.k_slab, page);
    const T* v = tile(block.v_slab, page);
    const bool ahead = page + kAhead < block.page_end;
    const T* k_ahead = ahead ? tile(block.k_slab, page + kAhead) : nullptr;
    const T* v_ahead = ahead ? tile(block.v_slab, page + kAhead) : nullptr;
    for (int row = 0; row < block.rows; row += kRows) {
      const int rows = block.rows - row;
      switch (rows < kRows ? rows : kRows) {
        case 1:
          fold_page<V, T, 1>(block, row, page, k, v, k_ahead, v_ahead, state);
          break;
        case 2:
          fold_page<V, T, 2>(block, row, page, k, v, k_ahead, v_ahead, state);
          break;
        case 3:
          fold_page<V, T, 3>(block, row, page, k, v, k_ahead, v_ahead, state);
          break;
        case 4:
          fold_page<V, T, 4>(block, row, page, k, v, k_ahead, v_ahead, state);
          break;
        case 5:
          fold_page<V, T, 5>(block, row, page, k, v, k_ahead, v_ahead, state);
          break;
        case 6:
          fold_page<V, T, 6>(block, row, page, k, v, k_ahead, v_ahead, state);
          break;
        case 7:
          fold_page<V, T, 7>(block, row, page, k, v, k_ahead, v_ahead, state);
          break;
        default:
          fold_page<V, T, 8>(block, row, page, k, v, k_ahead, v_ahead, state);
          break;
      }
      k_ahead = v_ahead = nullptr;  // asked for once
    }
  }
}

template <typename V>
void fold_states(std::int32_t rows, std::int32_t head_dim, AttentionState into, AttentionState from) {
  for (std::int32_t r = 0; r < rows; ++r) {
    // Its sum is zero only where a row saw nothing: the maximum's own weight is 1. A NaN sum is not empty.
    if (from.l[r] == 0) continue;
    const FoldFactors factors = fold_sums<V>(into.m[r], into.l[r], from.m[r], from.l[r]);
    float* a = into.o + static_cast<std::int64_t>(r) * head_dim;
    const float* b = from.o + static_cast<std::int64_t>(r) * head_dim;
    for (std::int32_t d = 0; d < head_dim; d += V::kWidth) {
      const int n = head_dim - d;
      const auto x = V::mul(V::load_first(b + d, n), V::set(factors.gain));
      V::store_first(a + d, V::fma(V::load_first(a + d, n), V::set(factors.keep), x), n);
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
  return {fold_pages<V, Bf16>, fold_pages<V, float>, fold_states<V>, round_to_bf16<V>};
}

}  // namespace
}  // namespace shoal::kernels
