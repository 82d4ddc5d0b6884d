#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/matmul_inl.h"

namespace shoal::kernels {

#if defined(__x86_64__)
namespace {

struct Avx512 {
  using F = __m512;
  using I = __m512i;
  // Two blocks share the broadcasts and give a core two streams; 8 rows x 2 blocks are 16 of 32 registers.
  static constexpr int kBlocks = 2;
  static constexpr int kMaxRows = 8;
  // Two blocks x 4 rows of both sums and products are 16 registers; with 8 rows they would be all 32.
  static constexpr int kSharedRows = 4;
  static constexpr bool kSignedDot = false;

  static SHOAL_INLINE F zero_f() { return _mm512_setzero_ps(); }
  static SHOAL_INLINE F load_f(const void* p) { return _mm512_loadu_ps(p); }
  static SHOAL_INLINE void store(float* p, F v) { _mm512_storeu_ps(p, v); }
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

SHOAL_INLINE void quantise_block(const float* x, Q8Block& out) {
  const __m512 a = _mm512_loadu_ps(x);
  const __m512 b = _mm512_loadu_ps(x + 16);
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  const auto largest = static_cast<std::uint32_t>(
      _mm512_reduce_max_epi32(_mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(a), magnitude),
                                               _mm512_and_si512(_mm512_castps_si512(b), magnitude))));
  float amax;
  __builtin_memcpy(&amax, &largest, sizeof(amax));
  __m256i* q = reinterpret_cast<__m256i*>(out.q);
  if (largest >= 0x7f800000U || amax < kSmallestQuantised) {
    _mm256_storeu_si256(q, _mm256_setzero_si256());
    out.scale = largest >= 0x7f800000U ? __builtin_nanf("") : 0.0F;
    out.sum = 0;
    out.neg_sum = 0;
    out.neg_low = 0;
    return;
  }
  const __m512 inverse = _mm512_set1_ps(127.0F / amax);
  const __m512i qa = _mm512_cvtps_epi32(_mm512_mul_ps(a, inverse));
  const __m512i qb = _mm512_cvtps_epi32(_mm512_mul_ps(b, inverse));
  const __m256i bytes =
      _mm256_inserti128_si256(_mm256_castsi128_si256(_mm512_cvtepi32_epi8(qa)), _mm512_cvtepi32_epi8(qb), 1);
  _mm256_storeu_si256(q, bytes);
  const std::int32_t low = _mm512_reduce_add_epi32(qa);
  const std::int32_t all = low + _mm512_reduce_add_epi32(qb);
  out.scale = amax / 127.0F;
  out.sum = static_cast<float>(all);
  out.neg_sum = -all;
  out.neg_low = -low;
}

}  // namespace

PanelKernel f32_kernel_avx512(DType type) { return f32_kernel<Avx512>(type); }
PanelKernel int8_kernel_avx512(DType type) { return int8_kernel<Avx512>(type); }

void quantise_row_avx512(const float* x, const RowSegment* segments, std::int64_t count, Q8Block* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t k = segments[i].begin; k < segments[i].end; k += 32) quantise_block(x + k, *out++);
  }
}
#else
PanelKernel f32_kernel_avx512(DType) { return nullptr; }
PanelKernel int8_kernel_avx512(DType) { return nullptr; }
void quantise_row_avx512(const float*, const RowSegment*, std::int64_t, Q8Block*) {}
#endif

}  // namespace shoal::kernels
