// One float as a "vector": what kernels written once over a vector type run on where no SIMD set is chosen,
// and the reading of that type's interface. vec_avx2.h and vec_avx512.h offer the same names.
//
// Thread-safety: pure functions.
// Invariants:
//   1. load_pairs reads kWidth pairs (a0 b0 a1 b1 ...) and gives the a and the b of each: the pool's order
//      (tensor/kv_layout.h).
//   2. max(a, b) and min(a, b) give b where either is NaN: write the value that may be NaN second to keep it,
//      first to drop it.
//   3. reduce_* add lanes in one fixed order.
//   4. clamp_exponent keeps x where scale_by_floor(p, x) = p * 2^floor(x) takes it; fraction(x) = x -
//   floor(x). The
//      vector types have them. NaN passes all three.
//   5. prefetch asks for a line in L2.

#pragma once

#include <bit>
#include <cstdint>

#include "tensor/half.h"

namespace shoal::kernels {

struct VecScalar {
  using F = float;
  using Mask = bool;
  static constexpr int kWidth = 1;
  // exp2_poly clamps to these: 2^-127 is flushed to zero, 2^128 is infinity.
  static constexpr float kExponentMin = -127;
  static constexpr float kExponentMax = 128;

  static F zero() { return 0; }
  static F set(float x) { return x; }
  static F load(const float* p) { return *p; }
  static F load_first(const float* p, int n) { return n > 0 ? *p : 0; }
  static void store(float* p, F x) { *p = x; }
  static void store_first(float* p, F x, int n) {
    if (n > 0) *p = x;
  }

  static F add(F a, F b) { return a + b; }
  static F sub(F a, F b) { return a - b; }
  static F mul(F a, F b) { return a * b; }
  static F div(F a, F b) { return a / b; }
  // Not fused here: a libm call each would cost more than the rounding is worth.
  static F fma(F a, F b, F c) { return a * b + c; }
  static F max(F a, F b) { return a > b ? a : b; }
  static F min(F a, F b) { return a < b ? a : b; }
  static F abs(F a) { return std::bit_cast<float>(std::bit_cast<std::uint32_t>(a) & 0x7fffffffU); }
  static F copy_sign(F magnitude, F sign) {
    return std::bit_cast<float>((std::bit_cast<std::uint32_t>(magnitude) & 0x7fffffffU) |
                                (std::bit_cast<std::uint32_t>(sign) & 0x80000000U));
  }
  static F sqrt(F a) { return __builtin_sqrtf(a); }
  // To the nearest integer, ties to even; |x| < 2^22.
  static F round(F x) { return (x + 0x1.8p23F) - 0x1.8p23F; }
  // x * 2^n for integral n in [kExponentMin, kExponentMax].
  static F scale(F x, F n) {
    return x * std::bit_cast<float>(
                   static_cast<std::uint32_t>(static_cast<std::int32_t>(n == n ? n : 0) + 127) << 23);
  }

  static Mask mask(std::uint32_t bits) { return (bits & 1U) != 0; }
  static Mask less(F a, F b) { return a < b; }
  static std::uint32_t equal_bits(F a, F b) { return a == b ? 1 : 0; }
  static std::uint32_t less_equal_bits(F a, F b) { return a <= b ? 1 : 0; }
  static F select(Mask m, F yes, F no) { return m ? yes : no; }
  static float reduce_max(F x) { return x; }
  static float reduce_add(F x) { return x; }
  // Reduces R vectors at once, R <= 4 for kWidth 8 and R <= 8 else: out[r] = reduction of x[r], out [16]. The
  // order inside a vector is the same for every r and R (not that of reduce_add).
  template <int R>
  static void max_of_rows(const F* x, float* out) {
    for (int r = 0; r < R; ++r) out[r] = x[r];
  }
  template <int R>
  static void add_of_rows(const F* x, float* out) {
    for (int r = 0; r < R; ++r) out[r] = x[r];
  }

  static void load_pairs(const Bf16* p, F& a, F& b) {
    a = bf16_to_f32(p[0]);
    b = bf16_to_f32(p[1]);
  }
  static void load_pairs(const float* p, F& a, F& b) {
    a = p[0];
    b = p[1];
  }
  // The first n of kWidth pairs; the others read as zero, their memory is not touched.
  template <typename T>
  static void load_pairs_first(const T* p, int n, F& a, F& b) {
    a = 0;
    b = 0;
    if (n > 0) load_pairs(p, a, b);
  }
  // The first n pairs a0 b0 a1 b1 ...
  static void store_pairs_first(float* p, F a, F b, int n) {
    if (n <= 0) return;
    p[0] = a;
    p[1] = b;
  }
  static void store_bf16(Bf16* p, F x) { *p = f32_to_bf16(x); }
  static void prefetch(const void* p) { __builtin_prefetch(p, 0, 2); }
};

}  // namespace shoal::kernels
