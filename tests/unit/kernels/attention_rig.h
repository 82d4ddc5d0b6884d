// A sequence with its queries, keys and values and a pool to keep them in: what the attention tests drive.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "core/thread_pool.h"
#include "kernels/attention.h"
#include "kernels/isa.h"
#include "tensor/buffer.h"

namespace shoal::kernels::test {

inline std::vector<Isa> isas() {
  std::vector<Isa> all;
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    if (isa <= detected_isa()) all.push_back(isa);
  }
  return all;
}

// Rounding queries and weights to bf16 (2^-9 relatively) moves a score of deviation 2 by some 0.004 and so a
// weight by 0.4 %, and the weight itself by as much; few keys share a row's weight and values are of order 1.
// Single outputs were seen to err by 0.017, those of a case by 0.001 on average, where a wrong mask shows.
inline constexpr double kTileTolerance = 3e-2;
inline constexpr double kTileMeanTolerance = 3e-3;

struct Heads {
  std::int32_t head_dim = 64;
  std::vector<std::int32_t> kv_head_of = {0, 0, 0, 1, 1, 1};
  std::int32_t window = 0;
  float softcap = 0;
  KvDType dtype = KvDType::kBf16;

  std::int32_t kv_heads() const { return kv_head_of.back() + 1; }
  std::int32_t query_heads() const { return static_cast<std::int32_t>(kv_head_of.size()); }
  AttentionShape shape(std::int32_t layer = 1) const {
    return {layer,   head_dim, query_heads(), kv_head_of, 1.0F / std::sqrt(static_cast<float>(head_dim)),
            softcap, window};
  }
};

// A pool whose every byte is NaN until written: what an earlier owner may have left.
class Pool {
 public:
  Pool(const Heads& heads, std::int32_t slots, std::uint32_t seed) {
    view_.layout = {2, heads.kv_heads(), heads.head_dim, slots, heads.dtype};
    bytes_ = std::move(*Buffer::allocate(view_.layout.pool_bytes(), "test pool"));
    std::fill_n(bytes_.as<std::uint8_t>(), bytes_.size(), std::uint8_t{0xff});
    view_.base = bytes_.data();
    free_.resize(static_cast<std::size_t>(slots));
    std::iota(free_.begin(), free_.end(), 0);
    std::shuffle(free_.begin(), free_.end(), std::mt19937(seed));
  }
  const KvView& view() const { return view_; }
  std::vector<std::int32_t> take(std::int32_t tokens) {
    std::vector<std::int32_t> slots;
    for (std::int32_t t = 0; t < tokens; t += kPageTokens) {
      slots.push_back(free_.back());
      free_.pop_back();
    }
    return slots;
  }

 private:
  Buffer bytes_;
  KvView view_;
  std::vector<std::int32_t> free_;
};

struct Tokens {
  Tokens(const Heads& heads, std::int32_t n, std::uint32_t seed)
      : rows(n),
        q_columns(heads.query_heads() * heads.head_dim),
        kv_columns(heads.kv_heads() * heads.head_dim) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 1);
    q.resize(static_cast<std::size_t>(n) * static_cast<std::size_t>(q_columns));
    k.resize(static_cast<std::size_t>(n) * static_cast<std::size_t>(kv_columns));
    v.resize(k.size());
    for (float& x : q) x = 2 * normal(random);  // scores of deviation 2: neither flat nor one key alone
    for (float& x : k) x = normal(random);
    for (float& x : v) x = normal(random);
  }
  MatrixView<const float> q_rows(std::int32_t first, std::int32_t n) const {
    return rows_of(q, q_columns, first, n);
  }
  MatrixView<const float> k_rows(std::int32_t first, std::int32_t n) const {
    return rows_of(k, kv_columns, first, n);
  }
  MatrixView<const float> v_rows(std::int32_t first, std::int32_t n) const {
    return rows_of(v, kv_columns, first, n);
  }

  std::int32_t rows;
  std::int32_t q_columns;
  std::int32_t kv_columns;
  std::vector<float> q, k, v;

 private:
  static MatrixView<const float> rows_of(const std::vector<float>& m, std::int32_t columns,
                                         std::int32_t first, std::int32_t n) {
    return {m.data() + static_cast<std::ptrdiff_t>(first) * columns, n, columns};
  }
};

// Runs a whole sequence through write_kv and attention, `chunk` tokens at a time, alone.
inline std::vector<float> run_sequence(const Context& context, const Heads& heads, const Tokens& tokens,
                                       std::int32_t chunk, std::uint32_t slot_seed = 1) {
  Pool pool(heads, tokens.rows / kPageTokens + 4, slot_seed);
  const std::vector<std::int32_t> slots = pool.take(tokens.rows);
  const AttentionShape shape = heads.shape();
  std::vector<float> out(tokens.q.size(), std::numeric_limits<float>::quiet_NaN());
  for (std::int32_t at = 0; at < tokens.rows; at += chunk) {
    const std::int32_t n = std::min(chunk, tokens.rows - at);
    const AttentionSpan span{0, n, at, slots};
    write_kv(context, pool.view(), shape, {&span, 1}, tokens.k_rows(at, n), tokens.v_rows(at, n));
    attention(context, pool.view(), shape, {&span, 1}, tokens.q_rows(at, n),
              {out.data() + static_cast<std::ptrdiff_t>(at) * tokens.q_columns, n, tokens.q_columns});
  }
  return out;
}

inline ::testing::AssertionResult same_bits(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size())
    return ::testing::AssertionFailure() << a.size() << " and " << b.size() << " values";
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i])) {
      return ::testing::AssertionFailure() << "value " << i << ": " << a[i] << " and " << b[i];
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace shoal::kernels::test
