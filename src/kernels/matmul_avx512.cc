#include "kernels/matmul_kernels.h"

#if defined(__x86_64__)
#include "kernels/matmul_vec_avx512.h"
#endif

namespace shoal::kernels {

#if defined(__x86_64__)
namespace {

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
