// Eight floats: AVX2 with FMA. The interface is described in vec_scalar.h.
//
// Thread-safety: pure functions.
// Invariants: empty where the including file is not built for AVX2.

#pragma once

#if defined(__AVX2__) && defined(__FMA__)

#include <immintrin.h>

#include <cstdint>

#include "tensor/half.h"

namespace shoal::kernels {

struct VecAvx2 {
  using F = __m256;
  using Mask = __m256;
  static constexpr int kWidth = 8;
  static constexpr float kExponentMin = -127;
  static constexpr float kExponentMax = 128;

  static F zero() { return _mm256_setzero_ps(); }
  static F set(float x) { return _mm256_set1_ps(x); }
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static F load_first(const float* p, int n) { return _mm256_maskload_ps(p, first(n)); }
  static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static void store_first(float* p, F x, int n) { _mm256_maskstore_ps(p, first(n), x); }

  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  static F min(F a, F b) { return _mm256_min_ps(a, b); }
  static F abs(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0F), a); }
  static F copy_sign(F magnitude, F sign) {
    const F bit = _mm256_set1_ps(-0.0F);
    return _mm256_or_ps(_mm256_andnot_ps(bit, magnitude), _mm256_and_ps(bit, sign));
  }
  static F sqrt(F a) { return _mm256_sqrt_ps(a); }
  static F round(F x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F scale(F x, F n) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
  }
  static F clamp_exponent(F x) { return min(set(kExponentMax - 1), max(set(kExponentMin), x)); }
  static F fraction(F x) { return sub(x, _mm256_floor_ps(x)); }
  static F scale_by_floor(F x, F n) { return scale(x, _mm256_floor_ps(n)); }

  static Mask mask(std::uint32_t bits) {
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i set = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), lane);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, lane));
  }
  static Mask less(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
  static std::uint32_t equal_bits(F a, F b) {
    return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)));
  }
  static std::uint32_t less_equal_bits(F a, F b) {
    return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_LE_OQ)));
  }
  static F select(Mask m, F yes, F no) { return _mm256_blendv_ps(no, yes, m); }
  static float reduce_max(F x) {
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
  }
  static float reduce_add(F x) {
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
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

  static void load_pairs(const Bf16* p, F& a, F& b) {
    split(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), a, b);
  }
  static void load_pairs(const float* p, F& a, F& b) {
    split(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8), a, b);
  }
  static void load_pairs_first(const Bf16* p, int n, F& a, F& b) {
    split(_mm256_maskload_epi32(reinterpret_cast<const int*>(p), first(n)), a, b);
  }
  static void load_pairs_first(const float* p, int n, F& a, F& b) {
    split(_mm256_maskload_ps(p, first(2 * n)), _mm256_maskload_ps(p + 8, first(2 * n - 8)), a, b);
  }
  static void store_pairs_first(float* p, F a, F b, int n) {
    const F low = _mm256_unpacklo_ps(a, b);
    const F high = _mm256_unpackhi_ps(a, b);
    _mm256_maskstore_ps(p, first(2 * n), _mm256_permute2f128_ps(low, high, 0x20));
    _mm256_maskstore_ps(p + 8, first(2 * n - 8), _mm256_permute2f128_ps(low, high, 0x31));
  }
  // To nearest, ties to even; NaN stays NaN.
  static void store_bf16(Bf16* p, F x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(sum, quiet, nan), 16);
    const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), packed);
  }
  static void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

 private:
  static __m128 add(__m128 a, __m128 b) { return _mm_add_ps(a, b); }
  static __m128 max(__m128 a, __m128 b) { return _mm_max_ps(a, b); }
  // Rows a, b, c, d to [a b c d] in each 128-bit lane: the lane's four as (0 + 2) + (1 + 3). Then lanes.
  template <int R, typename Op>
  static void reduce_rows(const F* x, float* out, Op op) {
    static_assert(R <= 4);
    const F a = x[0];
    const F b = R > 1 ? x[R > 1 ? 1 : 0] : zero();
    const F c = R > 2 ? x[R > 2 ? 2 : 0] : zero();
    const F d = R > 3 ? x[R > 3 ? 3 : 0] : zero();
    const __m256d ab = _mm256_castps_pd(op(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b)));
    const __m256d cd = _mm256_castps_pd(op(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d)));
    const F quads =
        op(_mm256_castpd_ps(_mm256_unpacklo_pd(ab, cd)), _mm256_castpd_ps(_mm256_unpackhi_pd(ab, cd)));
    _mm_storeu_ps(out, op(_mm256_castps256_ps128(quads), _mm256_extractf128_ps(quads, 1)));
  }
  static __m256i first(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static void split(__m256i pairs, F& a, F& b) {
    a = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
    b = _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000U))));
  }
  static void split(__m256 low, __m256 high, F& a, F& b) {
    // Lane order after the in-lane shuffle is 0 1 4 5 | 2 3 6 7 in pairs; permute4x64 puts it right.
    const __m256 even = _mm256_shuffle_ps(low, high, 0x88);
    const __m256 odd = _mm256_shuffle_ps(low, high, 0xdd);
    a = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(even), 0xd8));
    b = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(odd), 0xd8));
  }
};

}  // namespace shoal::kernels

#endif
