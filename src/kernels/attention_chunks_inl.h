// Attention over chunks of four pages for many rows, in f32, written once over a vector type (vec_*.h).
//
// Keys and values of a chunk are widened to f32 once, and all rows pass by them in groups whose sums fill the
// registers: folding page by page widens them again for every group and folds a state into another for every
// page.
//
// The reference that a row's scores are taken relative to need not be their maximum: f32 has range enough. It
// is the largest of the first scores, and is raised only where a sum shows that later ones lie 2^40 above it.
// So no pass over the scores looks for a maximum, and sums are rarely rescaled.
//
// Thread-safety: pure functions on what they are given.
// Invariants: as ChunkedAttention. Tokens that no row of a group sees reach none of its sums.

#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention_kernels.h"
#include "kernels/exp_inl.h"
#include "tensor/kv_layout.h"

namespace shoal::kernels {
namespace {  // each including file has its own copy, built with its own flags

template <typename V>
class ChunkFolder {
  using F = typename V::F;
  static constexpr int kWidth = V::kWidth;
  // Rows x 2 vectors of sums: 24 of the 32 AVX-512 registers, 12 of the 16 AVX2 ones.
  static constexpr int kRows = kWidth == 16 ? 12 : 6;
  static constexpr int kColumns = 2 * kWidth;
  static constexpr int kPages = 4;
  static constexpr int kTokens = kPages * kPageTokens;
  static constexpr std::uint32_t kAllLanes = (1U << kWidth) - 1;
  static constexpr float kRaiseAbove = 0x1p40F;
  static constexpr float kLowest = -__builtin_inff();

 public:
  static std::size_t workspace_bytes(std::int32_t rows, std::int32_t d) {
    const auto groups = static_cast<std::size_t>((rows + kRows - 1) / kRows);
    const auto wide = static_cast<std::size_t>(padded(d));
    // Queries, outputs, sums and references; a chunk's keys and values; a group's scores and weights. 16
    // floats each for alignment.
    return sizeof(float) * (groups * kRows * (static_cast<std::size_t>(d) + wide + kWidth + 2) +
                            kTokens * (static_cast<std::size_t>(d) + wide) + 2 * kRows * kTokens + 9 * 16);
  }

  ChunkFolder(const AttentionRows& t, std::byte* workspace)
      : t_(t), d_(t.head_dim), wide_(padded(t.head_dim)), groups_((t.rows + kRows - 1) / kRows) {
    auto* free = reinterpret_cast<float*>(workspace);
    const auto take = [&](std::int64_t n) {
      float* p = free;
      free += (n + 15) / 16 * 16;
      return p;
    };
    const std::int64_t rows = static_cast<std::int64_t>(groups_) * kRows;
    k_ = take(static_cast<std::int64_t>(kTokens) * d_);
    v_ = take(static_cast<std::int64_t>(kTokens) * wide_);
    scores_ = take(kRows * kTokens);
    weights_ = take(kRows * kTokens);
    q_ = take(rows * d_);
    o_ = take(rows * wide_);
    l_ = take(rows * kWidth);
    m_ = take(rows);
    last_ = reinterpret_cast<std::int32_t*>(take(rows));
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(kTokens) * wide_; ++i) v_[i] = 0;
    for (std::int64_t i = 0; i < rows * wide_; i += kWidth) V::store(o_ + i, V::zero());
    for (std::int64_t i = 0; i < rows; ++i) {
      m_[i] = kLowest;
      last_[i] = t_.position(i < t_.rows ? static_cast<std::int32_t>(i) : t_.rows - 1);
      V::store(l_ + i * kWidth, V::zero());
    }
    pack_queries();
    const std::int32_t first = t_.position(0);
    const std::int32_t last = t_.position(t_.rows - 1);
    all_begin_ = t_.window > 0 ? last - t_.window + 1 : 0;
    all_end_ = first + 1;
    some_begin_ = t_.window > 0 && first >= t_.window ? first - t_.window + 1 : 0;
    some_end_ = last + 1;
  }

  // False where a value that only some of the rows see is not finite.
  bool run() {
    for (std::int32_t page = t_.pages.begin / kPages * kPages; page < t_.pages.end; page += kPages) {
      start_ = page * kPageTokens;
      for (int i = 0; i < kPages; ++i) {
        if (page + i < t_.pages.begin || page + i >= t_.pages.end) continue;
        widen_keys(page + i, i * kPageTokens);
        if (!widen_values(page + i, i * kPageTokens)) return false;
      }
      begin_fetch(page + kPages);
      for (std::int32_t group = 0; group < groups_; ++group) {
        fold_group(group);
        fetch();
      }
    }
    return true;
  }

  void give(AttentionState state, float* out, std::int64_t out_stride) const {
    for (std::int32_t row = 0; row < t_.rows; ++row) {
      const float l = V::reduce_add(V::load(l_ + static_cast<std::int64_t>(row) * kWidth));
      const float* o = o_ + static_cast<std::int64_t>(row) * wide_;
      if (out == nullptr) {
        state.m[row] = m_[row];
        state.l[row] = l;
        copy(o, V::set(1), state.o + static_cast<std::int64_t>(row) * d_);
      } else {
        const std::int32_t i = t_.first_row + row;
        copy(o, V::set(l == 0 ? 0.0F : 1.0F / l),
             out + i / t_.group * out_stride + static_cast<std::int64_t>(i % t_.group) * d_);
      }
    }
  }

 private:
  static std::int32_t padded(std::int32_t d) { return (d + kColumns - 1) / kColumns * kColumns; }

  void copy(const float* o, F factor, float* to) const {
    for (std::int32_t i = 0; i < d_; i += kWidth)
      V::store_first(to + i, V::mul(V::load(o + i), factor), d_ - i);
  }

  // [groups][head_dim][kRows]; zeros where there is no row.
  void pack_queries() {
    for (std::int32_t row = 0; row < groups_ * kRows; ++row) {
      float* to = q_ + static_cast<std::int64_t>(row / kRows) * kRows * d_ + row % kRows;
      const std::int32_t i = t_.first_row + row;
      const float* q = t_.q + i / t_.group * t_.q_stride + static_cast<std::int64_t>(i % t_.group) * d_;
      for (std::int32_t d = 0; d < d_; ++d) to[d * kRows] = row < t_.rows ? q[d] * t_.q_factor : 0;
    }
  }

  const Bf16* tile(const std::byte* slab, std::int32_t page) const {
    return reinterpret_cast<const Bf16*>(slab +
                                         static_cast<std::size_t>(t_.pages.slots[page]) * t_.tile_bytes);
  }

  // To k_ [head_dim][kTokens], from token `at` on.
  void widen_keys(std::int32_t page, int at) {
    const Bf16* p = tile(t_.pages.k_slab, page);
    for (std::int32_t d = 0; d < d_; d += 2, p += 2 * kPageTokens) {
      float* to = k_ + static_cast<std::int64_t>(d) * kTokens + at;
      for (int t = 0; t < kPageTokens; t += kWidth) {
        F even;
        F odd;
        V::load_pairs(p + 2 * t, even, odd);
        V::store(to + t, even);
        V::store(to + kTokens + t, odd);
      }
    }
  }

  // To v_ [kTokens][wide_], from token `at` on.
  bool widen_values(std::int32_t page, int at) {
    const Bf16* p = tile(t_.pages.v_slab, page);
    bool finite = true;
    for (int t = 0; t < kPageTokens; t += 2, p += 2 * d_) {
      float* to = v_ + static_cast<std::int64_t>(at + t) * wide_;
      F sum[2] = {V::zero(), V::zero()};
      for (std::int32_t d = 0; d < d_; d += kWidth) {
        F x[2];
        V::load_pairs_first(p + 2 * d, d_ - d, x[0], x[1]);
        for (int i = 0; i < 2; ++i) {
          V::store(to + i * wide_ + d, x[i]);
          sum[i] = V::add(sum[i], V::sub(x[i], x[i]));  // NaN from NaN and infinity
        }
      }
      for (int i = 0; i < 2; ++i) {
        const std::int32_t token = page * kPageTokens + t + i;
        const bool some = token >= some_begin_ && token < some_end_;
        const bool all = token >= all_begin_ && token < all_end_;
        if (some && !all && V::equal_bits(sum[i], V::zero()) != kAllLanes) finite = false;
      }
    }
    return finite;
  }

  // -- one group

  // Tokens of the chunk that a row sees: [begin, end), empty where begin >= end.
  void seen(std::int32_t row, std::int32_t& begin, std::int32_t& end) const {
    const std::int32_t last = last_[row] + 1;
    end = smaller(last, t_.pages.end * kPageTokens) - start_;
    begin = (t_.window > 0 ? last - t_.window : 0) - start_;
    begin = larger(begin, larger(t_.pages.begin * kPageTokens - start_, 0));
    end = smaller(end, kTokens);
  }
  static std::int32_t smaller(std::int32_t a, std::int32_t b) { return b < a ? b : a; }
  static std::int32_t larger(std::int32_t a, std::int32_t b) { return a < b ? b : a; }

  void fold_group(std::int32_t group) {
    std::int32_t begins[kRows];
    std::int32_t ends[kRows];
    std::int32_t begin = kTokens;
    std::int32_t end = 0;
    for (int r = 0; r < kRows; ++r) {
      seen(group * kRows + r, begins[r], ends[r]);
      if (begins[r] >= ends[r]) continue;
      begin = smaller(begin, begins[r]);
      end = larger(end, ends[r]);
    }
    if (begin >= end) return;
    const std::int64_t first = static_cast<std::int64_t>(group) * kRows;
    for (std::int32_t t = begin / kColumns * kColumns; t < end; t += kColumns) {
      score_columns(q_ + first * d_, k_ + t, scores_ + t);
    }
    for (int r = 0; r < kRows; ++r) weigh_row(first + r, r, begins[r], ends[r], begin, end);
    for (std::int32_t d = 0; d < wide_; d += kColumns) {
      add_values(begin, end, v_ + d, o_ + first * wide_ + d);
    }
  }

  void score_columns(const float* q, const float* k, float* scores) const {
    F sums[kRows][2];
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = V::zero();
    for (std::int32_t d = 0; d < d_; ++d, q += kRows, k += kTokens) {
      const F a = V::load(k);
      const F b = V::load(k + kWidth);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        const F x = V::set(q[r]);
        sums[r][0] = V::fma(x, a, sums[r][0]);
        sums[r][1] = V::fma(x, b, sums[r][1]);
      }
    }
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      V::store(scores + r * kTokens, sums[r][0]);
      V::store(scores + r * kTokens + kWidth, sums[r][1]);
    }
  }

  void add_values(std::int32_t begin, std::int32_t end, const float* v, float* o) const {
    F sums[kRows][2];
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      sums[r][0] = V::load(o + static_cast<std::int64_t>(r) * wide_);
      sums[r][1] = V::load(o + static_cast<std::int64_t>(r) * wide_ + kWidth);
    }
    v += static_cast<std::int64_t>(begin) * wide_;
    for (const float* w = weights_ + begin; w != weights_ + end; ++w, v += wide_) {
      const F a = V::load(v);
      const F b = V::load(v + kWidth);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        const F x = V::set(w[r * kTokens]);
        sums[r][0] = V::fma(x, a, sums[r][0]);
        sums[r][1] = V::fma(x, b, sums[r][1]);
      }
    }
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      V::store(o + static_cast<std::int64_t>(r) * wide_, sums[r][0]);
      V::store(o + static_cast<std::int64_t>(r) * wide_ + kWidth, sums[r][1]);
    }
  }

  // -- weights

  // Lanes of the vector at token `at` that lie in [begin, end).
  static typename V::Mask lanes(std::int32_t at, std::int32_t begin, std::int32_t end) {
    const std::int32_t low = smaller(larger(begin - at, 0), kWidth);
    const std::int32_t high = smaller(larger(end - at, 0), kWidth);
    const std::uint32_t bits = ((1ULL << high) - 1) & ~((1ULL << low) - 1);
    return V::mask(bits);
  }

  // Row `r` of the group: weights of [begin, end), zeros in the rest of what the group sees.
  void weigh_row(std::int64_t row, int r, std::int32_t begin, std::int32_t end, std::int32_t group_begin,
                 std::int32_t group_end) {
    float* s = scores_ + r * kTokens;
    float* w = weights_ + r * kTokens;
    if (begin >= end) {
      for (std::int32_t t = group_begin / kWidth * kWidth; t < group_end; t += kWidth)
        V::store(w + t, V::zero());
      return;
    }
    if (t_.cap_log2 != 0) {
      for (std::int32_t t = begin / kWidth * kWidth; t < end; t += kWidth) {
        V::store(s + t, V::mul(V::set(t_.cap_log2), tanh_of<V>(V::load(s + t))));
      }
    }
    float* l = l_ + row * kWidth;
    F sum;
    if (begin == 0 && end == kTokens && m_[row] != kLowest) {
      const F base = V::set(m_[row]);
      sum = V::zero();
#pragma GCC unroll 4
      for (std::int32_t t = 0; t < kTokens; t += kWidth) {
        const F p = exp2_any(V::sub(V::load(s + t), base));
        V::store(w + t, p);
        sum = V::add(sum, p);
      }
    } else {
      if (m_[row] == kLowest) {
        const std::int32_t t = begin / kWidth * kWidth;
        m_[row] = V::reduce_max(V::select(lanes(t, begin, end), V::load(s + t), V::set(kLowest)));
      }
      sum = weights_of(s, w, m_[row], begin, end, group_begin, group_end);
    }
    // All lanes, so that NaN goes there too.
    if (V::less_equal_bits(sum, V::set(kRaiseAbove)) != kAllLanes) [[unlikely]] {
      sum = raise(row, s, w, begin, end, group_begin, group_end);
    }
    V::store(l, V::add(V::load(l), sum));
  }

  // 2^x, relative error 7.5e-8: minimax polynomial on [0, 1). NaN gives NaN, -inf zero.
  static F exp2_any(F x) {
    x = V::clamp_exponent(x);
    const F f = V::fraction(x);
    F p = V::fma(f, V::set(1.87757667e-3F), V::set(8.98934009e-3F));
    p = V::fma(p, f, V::set(5.58263181e-2F));
    p = V::fma(p, f, V::set(2.40153617e-1F));
    p = V::fma(p, f, V::set(6.93153073e-1F));
    p = V::fma(p, f, V::set(9.99999925e-1F));
    return V::scale_by_floor(p, x);
  }

  static F weights_of(const float* s, float* w, float m, std::int32_t begin, std::int32_t end,
                      std::int32_t group_begin, std::int32_t group_end) {
    const F base = V::set(m);
    F sum = V::zero();
    for (std::int32_t t = group_begin / kWidth * kWidth; t < group_end; t += kWidth) {
      const F p = V::select(lanes(t, begin, end), exp2_any(V::sub(V::load(s + t), base)), V::zero());
      V::store(w + t, p);
      sum = V::add(sum, p);
    }
    return sum;
  }

  // Takes the row's scores relative to their own maximum, where that is above the reference so far.
  __attribute__((noinline)) F raise(std::int64_t row, const float* s, float* w, std::int32_t begin,
                                    std::int32_t end, std::int32_t group_begin, std::int32_t group_end) {
    F top = V::set(kLowest);
    bool nan = false;
    for (std::int32_t t = begin / kWidth * kWidth; t < end; t += kWidth) {
      const F x = V::select(lanes(t, begin, end), V::load(s + t), V::set(kLowest));
      nan = nan || V::equal_bits(x, x) != kAllLanes;
      top = V::max(x, top);
    }
    const float old = m_[row];
    const float highest = V::reduce_max(top);
    const float m = old > highest ? old : highest;
    if (m == kLowest && !nan) {  // scores of minus infinity: as if unseen
      for (std::int32_t t = group_begin / kWidth * kWidth; t < group_end; t += kWidth)
        V::store(w + t, V::zero());
      return V::zero();
    }
    const F keep = old == kLowest ? V::zero() : exp2_of<V>(V::set(old - m));
    m_[row] = m;
    float* o = o_ + row * wide_;
    for (std::int32_t d = 0; d < wide_; d += kWidth) V::store(o + d, V::mul(V::load(o + d), keep));
    float* l = l_ + row * kWidth;
    V::store(l, V::mul(V::load(l), keep));
    return weights_of(s, w, m, begin, end, group_begin, group_end);
  }

  // -- fetching the next chunk into L2 while this one is worked on

  void begin_fetch(std::int32_t page) {
    fetch_ = t_.pages;
    fetch_.begin = page;
    if (page >= fetch_.end) fetch_ = t_.after;
    fetch_.end = smaller(fetch_.begin + kPages, fetch_.end);
    line_ = 0;
    lines_ = kPages * 2 * tile_lines() / groups_ + 1;
  }
  std::int32_t tile_lines() const { return static_cast<std::int32_t>((t_.tile_bytes + 63) / 64); }

  void fetch() {
    for (std::int32_t i = 0; i < lines_ && fetch_.begin < fetch_.end; ++i) {
      const std::size_t at = static_cast<std::size_t>(fetch_.slots[fetch_.begin]) * t_.tile_bytes;
      const bool key = line_ < tile_lines();
      V::prefetch(key ? fetch_.k_slab + at + 64 * line_ : fetch_.v_slab + at + 64 * (line_ - tile_lines()));
      if (++line_ < 2 * tile_lines()) continue;
      line_ = 0;
      ++fetch_.begin;
    }
  }

  const AttentionRows& t_;
  const std::int32_t d_;
  const std::int32_t wide_;  // head_dim in whole pairs of vectors
  const std::int32_t groups_;
  float* k_;
  float* v_;
  float* scores_;   // [kRows][kTokens]
  float* weights_;  // [kRows][kTokens]
  float* q_;
  float* o_;                    // [rows][wide_]
  float* l_;                    // [rows][kWidth]: sums by lane
  float* m_;                    // [rows]
  std::int32_t* last_;          // [rows]: positions
  std::int32_t all_begin_ = 0;  // tokens that every row sees
  std::int32_t all_end_ = 0;
  std::int32_t some_begin_ = 0;  // tokens that some row sees
  std::int32_t some_end_ = 0;
  std::int32_t start_ = 0;  // first token of the chunk
  KvPages fetch_;           // what is left to fetch of the next chunk
  std::int32_t line_ = 0;
  std::int32_t lines_ = 0;  // for one group
};

template <typename V>
bool takes_any_head_dim(std::int32_t) {
  return true;
}

template <typename V>
std::size_t chunk_workspace_bytes(std::int32_t rows, std::int32_t head_dim) {
  return ChunkFolder<V>::workspace_bytes(rows, head_dim);
}

template <typename V>
bool fold_chunks(const AttentionRows& rows, std::byte* workspace, AttentionState state, float* out,
                 std::int64_t out_stride) {
  ChunkFolder<V> folder(rows, workspace);
  if (!folder.run()) return false;
  folder.give(state, out, out_stride);
  return true;
}

// Below 32 rows what is widened serves too few groups.
template <typename V>
constexpr ChunkedAttention make_chunk_attention() {
  return {takes_any_head_dim<V>, 32, 1, chunk_workspace_bytes<V>, fold_chunks<V>};
}

}  // namespace
}  // namespace shoal::kernels
