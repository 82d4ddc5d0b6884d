// Sixteen floats: AVX-512 F, BW, VL, DQ. The interface is described in vec_scalar.h.
//
// Thread-safety: pure functions.
// Invariants: empty where the including file is not built for AVX-512.

#pragma once

#if defined(__AVX512F__) && defined(__AVX512DQ__)

#include <immintrin.h>

#include <cstdint>

#include "tensor/half.h"

namespace shoal::kernels {

struct VecAvx512 {
  using F = __m512;
  using Mask = __mmask16;
  static constexpr int kWidth = 16;
  // VSCALEF has no exponent limits: the clamp only keeps infinities out of the polynomial.
  static constexpr float kExponentMin = -160;
  static constexpr float kExponentMax = 129;

  static F zero() { return _mm512_setzero_ps(); }
  static F set(float x) { return _mm512_set1_ps(x); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static F load_first(const float* p, int n) { return _mm512_maskz_loadu_ps(first(n), p); }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static void store_first(float* p, F x, int n) { _mm512_mask_storeu_ps(p, first(n), x); }

  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static F abs(F a) { return _mm512_abs_ps(a); }
  static F copy_sign(F magnitude, F sign) {
    const F bit = _mm512_set1_ps(-0.0F);
    return _mm512_or_ps(_mm512_andnot_ps(bit, magnitude), _mm512_and_ps(bit, sign));
  }
  static F sqrt(F a) { return _mm512_sqrt_ps(a); }
  static F round(F x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F scale(F x, F n) { return _mm512_scalef_ps(x, n); }
  static F clamp_exponent(F x) { return x; }
  static F fraction(F x) {
    constexpr int kFromFloor = 0x09;  // no exceptions
    return _mm512_reduce_ps(x, kFromFloor);
  }
  static F scale_by_floor(F x, F n) { return _mm512_scalef_ps(x, n); }

  static Mask mask(std::uint32_t bits) { return static_cast<Mask>(bits); }
  static Mask less(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  static std::uint32_t equal_bits(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
  static std::uint32_t less_equal_bits(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
  static F select(Mask m, F yes, F no) { return _mm512_mask_mov_ps(no, m, yes); }
  static float reduce_max(F x) {
    const __m256 q = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(q), _mm256_extractf128_ps(q, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
  }
  static float reduce_add(F x) {
    const __m256 q = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(q), _mm256_extractf128_ps(q, 1));
    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
  }

  template <int R>
  static void max_of_rows(const F* x, float* out) {
    reduce_rows<R>(x, out, [](auto a, auto b) { return max(a, b); });
  }
  template <int R>
  static void add_of_rows(const F* x, float* out) {
    reduce_rows<R>(x, out, [](auto a, auto b) { return add(a, b); });
  }

  static void load_pairs(const Bf16* p, F& a, F& b) { split(_mm512_loadu_si512(p), a, b); }
  static void load_pairs(const float* p, F& a, F& b) {
    split(_mm512_loadu_ps(p), _mm512_loadu_ps(p + 16), a, b);
  }
  static void load_pairs_first(const Bf16* p, int n, F& a, F& b) {
    split(_mm512_maskz_loadu_epi32(first(n), p), a, b);
  }
  static void load_pairs_first(const float* p, int n, F& a, F& b) {
    split(_mm512_maskz_loadu_ps(first(2 * n), p), _mm512_maskz_loadu_ps(first(2 * n - 16), p + 16), a, b);
  }
  static void store_pairs_first(float* p, F a, F b, int n) {
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    _mm512_mask_storeu_ps(p, first(2 * n), _mm512_permutex2var_ps(a, low, b));
    _mm512_mask_storeu_ps(p + 16, first(2 * n - 16), _mm512_permutex2var_ps(a, high, b));
  }
  // To nearest, ties to even; NaN stays NaN. Not VCVTNEPS2BF16: it flushes denormals and not every CPU has
  // it.
  static void store_bf16(Bf16* p, F x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i rounded = _mm512_mask_or_epi32(sum, nan, bits, _mm512_set1_epi32(0x400000));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
  }
  static void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

 private:
  // Rows a, b, c, d to [a b c d] in each 128-bit lane: the lane's four as (0 + 2) + (1 + 3).
  template <typename Op>
  static F quads(F a, F b, F c, F d, Op op) {
    const __m512d ab = _mm512_castps_pd(op(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)));
    const __m512d cd = _mm512_castps_pd(op(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d)));
    return op(_mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)), _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)));
  }
  // Lanes then join as (0 + 2) + (1 + 3) too. Rows 4 to 7 travel in the upper half.
  template <int R, typename Op>
  static void reduce_rows(const F* x, float* out, Op op) {
    static_assert(R <= 8);
    auto row = [&](int r) { return r < R ? x[r < R ? r : 0] : zero(); };
    const F low = quads(row(0), row(1), row(2), row(3), op);
    const F high = R > 4 ? quads(row(4), row(5), row(6), row(7), op) : low;
    const F halves = op(_mm512_shuffle_f32x4(low, high, 0x44), _mm512_shuffle_f32x4(low, high, 0xee));
    const F all = op(halves, _mm512_shuffle_f32x4(halves, halves, 0xb1));  // low low high high
    _mm512_storeu_ps(out, _mm512_shuffle_f32x4(all, all, 0xd8));           // low high low high
  }
  static __mmask16 first(int n) {
    return n <= 0 ? __mmask16{0} : static_cast<__mmask16>(n >= 16 ? 0xffffU : (1U << n) - 1);
  }
  static void split(__m512i pairs, F& a, F& b) {
    a = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    b = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000U))));
  }
  static void split(__m512 low, __m512 high, F& a, F& b) {
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    a = _mm512_permutex2var_ps(low, even, high);
    b = _mm512_permutex2var_ps(low, _mm512_or_si512(even, _mm512_set1_epi32(1)), high);
  }
};

}  // namespace shoal::kernels

#endif
