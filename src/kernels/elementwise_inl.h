// Row-wise arithmetic, written once over a vector type (vec_*.h).
//
// Thread-safety: pure functions on what they are given.
// Invariants: tails use the same operations as full vectors, on the lanes that exist.

#pragma once

#include <cstdint>

#include "kernels/elementwise_kernels.h"
#include "kernels/exp_inl.h"

namespace shoal::kernels {
namespace {  // each including file has its own copy, built with its own flags

// f(offset, lanes) over n elements: `lanes` is kWidth but for the last call.
template <typename V, typename F>
inline void for_vectors(std::int64_t n, F&& f) {
  std::int64_t i = 0;
  for (; i + V::kWidth <= n; i += V::kWidth) f(i, V::kWidth);
  if (i < n) f(i, static_cast<int>(n - i));
}

template <typename V>
inline typename V::F load_lanes(const float* p, int lanes) {
  return lanes == V::kWidth ? V::load(p) : V::load_first(p, lanes);
}

template <typename V>
inline void store_lanes(float* p, typename V::F x, int lanes) {
  if (lanes == V::kWidth) {
    V::store(p, x);
  } else {
    V::store_first(p, x, lanes);
  }
}

// Four sums side by side hide the latency of an FMA; they join pairwise, then lanes in a fixed tree.
template <typename V, typename Load>
inline float sum_of_squares(std::int64_t n, Load&& load) {
  using F = typename V::F;
  F sums[4] = {V::zero(), V::zero(), V::zero(), V::zero()};
  std::int64_t i = 0;
  for (; i + 4 * V::kWidth <= n; i += 4 * V::kWidth) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const F x = load(i + j * V::kWidth, V::kWidth);
      sums[j] = V::fma(x, x, sums[j]);
    }
  }
  for (int j = 0; i < n; i += V::kWidth, ++j) {
    const F x = load(i, n - i < V::kWidth ? static_cast<int>(n - i) : V::kWidth);
    sums[j] = V::fma(x, x, sums[j]);
  }
  return V::reduce_add(V::add(V::add(sums[0], sums[1]), V::add(sums[2], sums[3])));
}

inline float inverse_rms(float sum, std::int64_t n, float eps) {
  return 1.0F / __builtin_sqrtf(sum / static_cast<float>(n) + eps);
}

template <typename V>
inline void scale_row(const float* x, const float* weight, std::int64_t n, float factor, float* y) {
  for_vectors<V>(n, [&](std::int64_t i, int lanes) {
    const auto scaled = V::mul(load_lanes<V>(x + i, lanes), V::set(factor));
    store_lanes<V>(y + i, V::mul(scaled, load_lanes<V>(weight + i, lanes)), lanes);
  });
}

template <typename V>
void rms_norm_row(const float* x, const float* weight, std::int64_t n, float eps, float* y) {
  const float sum =
      sum_of_squares<V>(n, [&](std::int64_t i, int lanes) { return load_lanes<V>(x + i, lanes); });
  scale_row<V>(x, weight, n, inverse_rms(sum, n, eps), y);
}

template <typename V>
void add_rms_norm_row(float* x, const float* delta, const float* weight, std::int64_t n, float eps,
                      float* y) {
  const float sum = sum_of_squares<V>(n, [&](std::int64_t i, int lanes) {
    const auto t = V::add(load_lanes<V>(x + i, lanes), load_lanes<V>(delta + i, lanes));
    store_lanes<V>(x + i, t, lanes);
    return t;
  });
  scale_row<V>(x, weight, n, inverse_rms(sum, n, eps), y);
}

template <typename V>
void add_row(float* x, const float* delta, std::int64_t n) {
  for_vectors<V>(n, [&](std::int64_t i, int lanes) {
    store_lanes<V>(x + i, V::add(load_lanes<V>(x + i, lanes), load_lanes<V>(delta + i, lanes)), lanes);
  });
}

template <typename V>
void rope_row_adjacent(float* x, std::int64_t heads, std::int32_t head_dim, std::int32_t pairs,
                       const float* cosine, const float* sine) {
  for (std::int64_t h = 0; h < heads; ++h, x += head_dim) {
    for_vectors<V>(pairs, [&](std::int64_t i, int lanes) {
      typename V::F a;
      typename V::F b;
      V::load_pairs_first(x + 2 * i, lanes, a, b);
      const auto c = load_lanes<V>(cosine + i, lanes);
      const auto s = load_lanes<V>(sine + i, lanes);
      V::store_pairs_first(x + 2 * i, V::sub(V::mul(a, c), V::mul(b, s)), V::add(V::mul(a, s), V::mul(b, c)),
                           lanes);
    });
  }
}

template <typename V>
void rope_row_halves(float* x, std::int64_t heads, std::int32_t head_dim, std::int32_t pairs,
                     const float* cosine, const float* sine) {
  for (std::int64_t h = 0; h < heads; ++h, x += head_dim) {
    for_vectors<V>(pairs, [&](std::int64_t i, int lanes) {
      const auto a = load_lanes<V>(x + i, lanes);
      const auto b = load_lanes<V>(x + pairs + i, lanes);
      const auto c = load_lanes<V>(cosine + i, lanes);
      const auto s = load_lanes<V>(sine + i, lanes);
      store_lanes<V>(x + i, V::sub(V::mul(a, c), V::mul(b, s)), lanes);
      store_lanes<V>(x + pairs + i, V::add(V::mul(a, s), V::mul(b, c)), lanes);
    });
  }
}

// g / (1 + e^-g): for large -g the exponential is infinite and the quotient -0.
template <typename V>
void silu_row(const float* gate, const float* up, std::int64_t n, float* y) {
  for_vectors<V>(n, [&](std::int64_t i, int lanes) {
    const auto g = load_lanes<V>(gate + i, lanes);
    const auto e = exp_of<V>(V::sub(V::zero(), g));
    const auto act = V::div(g, V::add(V::set(1), e));
    store_lanes<V>(y + i, V::mul(act, load_lanes<V>(up + i, lanes)), lanes);
  });
}

// g / 2 * (1 + tanh(u)) with u = sqrt(2 / pi) * (g + 0.044715 g^3), which is g / (1 + e^-2u).
template <typename V>
void gelu_tanh_row(const float* gate, const float* up, std::int64_t n, float* y) {
  constexpr float kMinusTwoRoot = -1.5957691216F;  // -2 * sqrt(2 / pi)
  for_vectors<V>(n, [&](std::int64_t i, int lanes) {
    const auto g = load_lanes<V>(gate + i, lanes);
    const auto inner = V::fma(V::mul(V::set(0.044715F), V::mul(g, g)), g, g);
    const auto e = exp_of<V>(V::mul(V::set(kMinusTwoRoot), inner));
    const auto act = V::div(g, V::add(V::set(1), e));
    store_lanes<V>(y + i, V::mul(act, load_lanes<V>(up + i, lanes)), lanes);
  });
}

template <typename V>
constexpr ElementwiseKernels make_elementwise_kernels() {
  return {rms_norm_row<V>,    add_rms_norm_row<V>, add_row<V>,      rope_row_adjacent<V>,
          rope_row_halves<V>, silu_row<V>,         gelu_tanh_row<V>};
}

}  // namespace
}  // namespace shoal::kernels
