// The vector type of matmul_inl.h for AVX-512. Only for files compiled for it, hence the unnamed namespace:
// each has its own.

#pragma once

#include <immintrin.h>

#include "kernels/matmul_inl.h"

namespace shoal::kernels {
namespace {

struct Avx512 {
  using F = __m512;
  using I = __m512i;
  // Two blocks share the broadcasts and give a core two streams.
  static constexpr int kBlocks = 2;
  static constexpr bool kSignedDot = false;
  static constexpr bool kShiftsCodes = true;

  static SHOAL_INLINE F zero_f() { return _mm512_setzero_ps(); }
  static SHOAL_INLINE F load_f(const void* p) { return _mm512_loadu_ps(p); }
  static SHOAL_INLINE void store(float* p, F v) { _mm512_storeu_ps(p, v); }
  static SHOAL_INLINE void stream(float* p, F v) { _mm512_stream_ps(p, v); }
  static SHOAL_INLINE void fence_streams() { _mm_sfence(); }
  static SHOAL_INLINE F from_f16(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static SHOAL_INLINE F from_u8(const std::byte* p) {
    return to_f(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  static SHOAL_INLINE F from_i8(const std::byte* p) {
    return to_f(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  static SHOAL_INLINE F to_f(I v) { return _mm512_cvtepi32_ps(v); }
  static SHOAL_INLINE F as_f(I v) { return _mm512_castsi512_ps(v); }
  static SHOAL_INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static SHOAL_INLINE F mul_scalar(F a, float b) { return _mm512_mul_ps(a, _mm512_set1_ps(b)); }
  static SHOAL_INLINE F add(F a, F b) { return _mm512_add_ps(a, b); }
  static SHOAL_INLINE F negate(F a) {
    return as_f(_mm512_xor_si512(_mm512_castps_si512(a), set1(INT32_MIN)));
  }
  static SHOAL_INLINE F fma(F a, const float* scalar, F acc) {
    return _mm512_fmadd_ps(a, _mm512_set1_ps(*scalar), acc);
  }

  static SHOAL_INLINE I zero_i() { return _mm512_setzero_si512(); }
  static SHOAL_INLINE I load_i(const std::byte* p) { return _mm512_loadu_si512(p); }
  static SHOAL_INLINE I set1(std::int32_t value) { return _mm512_set1_epi32(value); }
  static SHOAL_INLINE I sub(I a, I b) { return _mm512_sub_epi32(a, b); }
  template <int n>
  static SHOAL_INLINE I shl(I a) {
    return _mm512_slli_epi32(a, n);
  }
  template <int n>
  static SHOAL_INLINE I shr(I a) {
    return _mm512_srli_epi32(a, n);
  }
  template <int n>
  static SHOAL_INLINE I sar(I a) {
    return _mm512_srai_epi32(a, n);
  }
  static SHOAL_INLINE I bits(I a, std::uint32_t mask) {
    return _mm512_and_si512(a, set1(static_cast<std::int32_t>(mask)));
  }
  static SHOAL_INLINE I or_bits(I a, I b, std::uint32_t mask) {
    // a | (b & mask)
    return _mm512_ternarylogic_epi32(a, b, set1(static_cast<std::int32_t>(mask)), 0xf8);
  }
  static SHOAL_INLINE I load_four(const std::int8_t* x) {
    std::int32_t four;
    __builtin_memcpy(&four, x, sizeof(four));
    return set1(four);
  }
  static SHOAL_INLINE I dot(I acc, I codes, I four) { return _mm512_dpbusd_epi32(acc, codes, four); }
  static SHOAL_INLINE I dot_signed(I acc, I codes, I four) { return dot(acc, codes, four); }
};

}  // namespace
}  // namespace shoal::kernels
