#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/matmul_inl.h"

namespace shoal::kernels {

#if defined(__x86_64__)
namespace {

struct Avx2 {
  struct F {
    __m256 low, high;
  };
  struct I {
    __m256i low, high;
  };
  // 4 rows of 16 outputs are 8 of 16 registers.
  static constexpr int kBlocks = 1;
  static constexpr int kMaxRows = 4;
  static constexpr int kSharedRows = 4;
  static constexpr bool kSignedDot = true;

  static SHOAL_INLINE F zero_f() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static SHOAL_INLINE F load_f(const void* p) {
    const auto* f = static_cast<const float*>(p);
    return {_mm256_loadu_ps(f), _mm256_loadu_ps(f + 8)};
  }
  static SHOAL_INLINE F load_f(const std::byte* p) { return as_f(load_i(p)); }
  static SHOAL_INLINE void store(float* p, F v) {
    _mm256_storeu_ps(p, v.low);
    _mm256_storeu_ps(p + 8, v.high);
  }
  static SHOAL_INLINE F from_f16(const std::byte* p) {
    const auto* h = reinterpret_cast<const __m128i*>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(h)), _mm256_cvtph_ps(_mm_loadu_si128(h + 1))};
  }
  static SHOAL_INLINE F from_u8(const std::byte* p) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return to_f({_mm256_cvtepu8_epi32(v), _mm256_cvtepu8_epi32(_mm_srli_si128(v, 8))});
  }
  static SHOAL_INLINE F from_i8(const std::byte* p) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return to_f({_mm256_cvtepi8_epi32(v), _mm256_cvtepi8_epi32(_mm_srli_si128(v, 8))});
  }
  static SHOAL_INLINE F to_f(I v) { return {_mm256_cvtepi32_ps(v.low), _mm256_cvtepi32_ps(v.high)}; }
  static SHOAL_INLINE F as_f(I v) { return {_mm256_castsi256_ps(v.low), _mm256_castsi256_ps(v.high)}; }
  static SHOAL_INLINE F mul(F a, F b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
  static SHOAL_INLINE F add(F a, F b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
  static SHOAL_INLINE F negate(F a) {
    const __m256 sign = _mm256_set1_ps(-0.0F);
    return {_mm256_xor_ps(a.low, sign), _mm256_xor_ps(a.high, sign)};
  }
  static SHOAL_INLINE F fma(F a, const float* scalar, F acc) {
    const __m256 b = _mm256_broadcast_ss(scalar);
    return {_mm256_fmadd_ps(a.low, b, acc.low), _mm256_fmadd_ps(a.high, b, acc.high)};
  }

  static SHOAL_INLINE I zero_i() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static SHOAL_INLINE I load_i(const std::byte* p) {
    const auto* v = reinterpret_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(v), _mm256_loadu_si256(v + 1)};
  }
  static SHOAL_INLINE I set1(std::int32_t value) {
    const __m256i v = _mm256_set1_epi32(value);
    return {v, v};
  }
  static SHOAL_INLINE I sub(I a, I b) {
    return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
  }
  template <int n>
  static SHOAL_INLINE I shl(I a) {
    return {_mm256_slli_epi32(a.low, n), _mm256_slli_epi32(a.high, n)};
  }
  template <int n>
  static SHOAL_INLINE I shr(I a) {
    return {_mm256_srli_epi32(a.low, n), _mm256_srli_epi32(a.high, n)};
  }
  static SHOAL_INLINE I bits(I a, std::uint32_t mask) {
    const __m256i m = _mm256_set1_epi32(static_cast<std::int32_t>(mask));
    return {_mm256_and_si256(a.low, m), _mm256_and_si256(a.high, m)};
  }
  static SHOAL_INLINE I or_bits(I a, I b, std::uint32_t mask) {
    const I masked = bits(b, mask);
    return {_mm256_or_si256(a.low, masked.low), _mm256_or_si256(a.high, masked.high)};
  }
  static SHOAL_INLINE I load_four(const std::int8_t* x) {
    std::int32_t four;
    __builtin_memcpy(&four, x, sizeof(four));
    return set1(four);
  }
  static SHOAL_INLINE __m256i pairs_to_sums(__m256i acc, __m256i pairs) {
    return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  // Codes up to 63: 2 x 63 x 127 = 16,002 fits the 16-bit pair sums.
  static SHOAL_INLINE I dot(I acc, I codes, I four) {
    return {pairs_to_sums(acc.low, _mm256_maddubs_epi16(codes.low, four.low)),
            pairs_to_sums(acc.high, _mm256_maddubs_epi16(codes.high, four.high))};
  }
  // |w| times x with w's sign: 2 x 128 x 127 = 32,512 still fits, 2 x 255 x 127 would saturate.
  static SHOAL_INLINE __m256i signed_pairs(__m256i codes, __m256i four) {
    const __m256i w = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(four, w));
  }
  static SHOAL_INLINE I dot_signed(I acc, I codes, I four) {
    return {pairs_to_sums(acc.low, signed_pairs(codes.low, four.low)),
            pairs_to_sums(acc.high, signed_pairs(codes.high, four.high))};
  }
};

SHOAL_INLINE std::int32_t sum_of(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
  return _mm_cvtsi128_si32(s);
}

SHOAL_INLINE std::uint32_t largest_of(__m256i v) {
  __m128i s = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0xb1));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(s));
}

SHOAL_INLINE void quantise_block(const float* x, Q8Block& out) {
  __m256 v[4];
  __m256i largest = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_loadu_ps(x + 8 * i);
    largest =
        _mm256_max_epi32(largest, _mm256_and_si256(_mm256_castps_si256(v[i]), _mm256_set1_epi32(0x7fffffff)));
  }
  const std::uint32_t bits = largest_of(largest);
  float amax;
  __builtin_memcpy(&amax, &bits, sizeof(amax));
  __m256i* q = reinterpret_cast<__m256i*>(out.q);
  if (bits >= 0x7f800000U || amax < kSmallestQuantised) {
    _mm256_storeu_si256(q, _mm256_setzero_si256());
    out.scale = bits >= 0x7f800000U ? __builtin_nanf("") : 0.0F;
    out.sum = 0;
    out.neg_sum = 0;
    out.neg_low = 0;
    return;
  }
  const __m256 inverse = _mm256_set1_ps(127.0F / amax);
  __m256i codes[4];
  for (int i = 0; i < 4; ++i) codes[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
  // Packing works in halves of 128 bits; the permutation puts the dwords back in order.
  const __m256i packed =
      _mm256_packs_epi16(_mm256_packs_epi32(codes[0], codes[1]), _mm256_packs_epi32(codes[2], codes[3]));
  _mm256_storeu_si256(q, _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
  const std::int32_t low = sum_of(_mm256_add_epi32(codes[0], codes[1]));
  const std::int32_t all = low + sum_of(_mm256_add_epi32(codes[2], codes[3]));
  out.scale = amax / 127.0F;
  out.sum = static_cast<float>(all);
  out.neg_sum = -all;
  out.neg_low = -low;
}

}  // namespace

PanelKernel f32_kernel_avx2(DType type) { return f32_kernel<Avx2>(type); }
PanelKernel int8_kernel_avx2(DType type) { return int8_kernel<Avx2>(type); }

void quantise_row_avx2(const float* x, const RowSegment* segments, std::int64_t count, Q8Block* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t k = segments[i].begin; k < segments[i].end; k += 32) quantise_block(x + k, *out++);
  }
}
#else
PanelKernel f32_kernel_avx2(DType) { return nullptr; }
PanelKernel int8_kernel_avx2(DType) { return nullptr; }
void quantise_row_avx2(const float*, const RowSegment*, std::int64_t, Q8Block*) {}
#endif

}  // namespace shoal::kernels
