#include "kernels/ceilings_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace shoal::kernels {

#if defined(__x86_64__)
namespace {
// Two units of four to five cycles: ten chains keep both busy, and twelve still leave registers for operands.
constexpr int kChains = 12;
}  // namespace

double rate_fma_avx2(std::int64_t rounds) {
  __m256 sums[kChains];
  for (__m256& sum : sums) sum = _mm256_setzero_ps();
  const __m256 x = _mm256_set1_ps(0x1p-20F);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (__m256& sum : sums) {
      sum = _mm256_fmadd_ps(x, x, sum);
      asm volatile("" : "+x"(sum));
    }
  }
  return 2.0 * 8 * kChains * static_cast<double>(rounds);
}

// VPMADDUBSW, VPMADDWD, VPADDD: the AVX2 path's product of bytes.
double rate_int8_avx2(std::int64_t rounds) {
  __m256i sums[kChains];
  for (__m256i& sum : sums) sum = _mm256_setzero_si256();
  __m256i x = _mm256_set1_epi8(1);
  const __m256i ones = _mm256_set1_epi16(1);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (__m256i& sum : sums) {
      asm volatile("" : "+x"(x));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(x, x), ones));
      asm volatile("" : "+x"(sum));
    }
  }
  return 2.0 * 32 * kChains * static_cast<double>(rounds);
}
#else
double rate_fma_avx2(std::int64_t) { return 0; }
double rate_int8_avx2(std::int64_t) { return 0; }
#endif

}  // namespace shoal::kernels
