// Sampling arithmetic, written once over a vector type (vec_*.h) and a way to hash a vector of tokens.
//
// Thread-safety: pure functions on what they are given.

#pragma once

#include <cstdint>

#include "kernels/exp_inl.h"
#include "kernels/noise_inl.h"
#include "kernels/sampling_math_kernels.h"

namespace shoal::kernels {
namespace {  // each including file has its own copy, built with its own flags

// Vector i of x * factor; lanes past n and NaN read as -inf.
template <typename V>
inline typename V::F scaled_logits(const float* x, std::int64_t i, std::int64_t n, float factor) {
  const auto lowest = V::set(-__builtin_inff());
  if (i + V::kWidth <= n) return V::max(V::mul(V::load(x + i), V::set(factor)), lowest);
  const int lanes = static_cast<int>(n - i);
  const auto v = V::max(V::mul(V::load_first(x + i, lanes), V::set(factor)), lowest);
  return V::select(V::mask((1U << lanes) - 1), v, lowest);
}

template <typename V>
float maximum(const float* x, std::int64_t n, float factor) {
  auto best = V::set(-__builtin_inff());
  for (std::int64_t i = 0; i < n; i += V::kWidth) best = V::max(scaled_logits<V>(x, i, n, factor), best);
  return V::reduce_max(best);
}

template <typename V>
float exp_sum(const float* x, std::int64_t n, float factor, float base) {
  auto even = V::zero();
  auto odd = V::zero();
  for (std::int64_t i = 0; i < n; i += 2 * V::kWidth) {
    even = V::add(even, exp_of<V>(V::sub(scaled_logits<V>(x, i, n, factor), V::set(base))));
    if (i + V::kWidth >= n) break;
    odd = V::add(odd, exp_of<V>(V::sub(scaled_logits<V>(x, i + V::kWidth, n, factor), V::set(base))));
  }
  return V::reduce_add(V::add(even, odd));
}

template <typename V>
std::int64_t find(const float* x, std::int64_t n, float wanted) {
  std::int64_t i = 0;
  for (; i + V::kWidth <= n; i += V::kWidth) {
    const std::uint32_t bits = V::equal_bits(V::load(x + i), V::set(wanted));
    if (bits != 0) return i + __builtin_ctz(bits);
  }
  for (; i < n; ++i) {
    if (x[i] == wanted) return i;
  }
  return n;
}

// Walks over tokens a vector at a time. complement(): the high 32 bits of the complement of their noise, as
// floats times 2^-32: a lower bound of 1 - u up to the rounding of the conversion.
template <typename V>
class HashOneByOne {
 public:
  explicit HashOneByOne(std::uint64_t key) : key_(key) {}
  void advance() { token_ += V::kWidth; }
  typename V::F complement() const {
    float high[V::kWidth];
    for (int i = 0; i < V::kWidth; ++i) {
      const auto top = static_cast<std::uint32_t>(~noise_of(key_, token_ + i) >> 32);
      high[i] = static_cast<float>(top) * 0x1p-32F;
    }
    return V::load(high);
  }

 private:
  std::uint64_t key_;
  std::int64_t token_ = 0;
};

// -log(u) >= 1 - u, so gumbel(u) = -log(-log(u)) <= -log(1 - u): a token can beat `best` only if
// 1 - u <= e^(x - best). That needs one exponential and no logarithm; about e^(log-sum-exp - best), a handful
// of all tokens, pass and are computed exactly.
template <typename V, typename Hash>
Draw best_draw(const float* x, std::int64_t n, float factor, std::uint64_t key, Draw best) {
  // The smallest 1 - u is 2^-53: below e^-36.8 no token wins, whatever its bits.
  const auto hopeless = V::set(-37.0F);
  // Slack covers the rounding of x * factor + gumbel and of everything here.
  auto to_beat = [&] { return best.value - (1e-4F + 4e-7F * (best.value < 0 ? -best.value : best.value)); };
  auto bound = V::set(to_beat());
  Hash hash(key);
  for (std::int64_t i = 0; i < n; i += V::kWidth, hash.advance()) {
    const auto behind = V::sub(scaled_logits<V>(x, i, n, factor), bound);
    const std::uint32_t hopeful = V::less_equal_bits(hopeless, behind);
    if (hopeful == 0) continue;
    std::uint32_t bits = hopeful & V::less_equal_bits(hash.complement(), exp_of<V>(behind));
    if (bits == 0) continue;
    for (; bits != 0; bits &= bits - 1) {
      const auto id = static_cast<TokenId>(i + __builtin_ctz(bits));
      const float value = x[id] * factor + gumbel_from(noise_of(key, id));
      if (value > best.value || (value == best.value && id < best.id)) best = {id, value};
    }
    bound = V::set(to_beat());
  }
  return best;
}

template <typename V, typename Hash>
constexpr SamplingKernels make_sampling_kernels() {
  return {maximum<V>, exp_sum<V>, find<V>, best_draw<V, Hash>};
}

}  // namespace
}  // namespace shoal::kernels
