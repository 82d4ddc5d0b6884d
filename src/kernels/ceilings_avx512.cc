#include "kernels/ceilings_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/unroll_inl.h"
#endif

namespace shoal::kernels {

#if defined(__x86_64__)
namespace {
// Two units of four to five cycles, twice over.
constexpr int kChains = 20;
}  // namespace

double rate_fma_avx512(std::int64_t rounds) {
  __m512 sums[kChains];
  unroll<kChains>([&](auto i) SHOAL_INLINE_LAMBDA { sums[i] = _mm512_setzero_ps(); });
  const __m512 x = _mm512_set1_ps(0x1p-20F);
  for (std::int64_t round = 0; round < rounds; ++round) {
    unroll<kChains>([&](auto i) SHOAL_INLINE_LAMBDA {
      __m512& sum = sums[i];
      sum = _mm512_fmadd_ps(x, x, sum);
      asm volatile("" : "+v"(sum));
    });
  }
  return 2.0 * 16 * kChains * static_cast<double>(rounds);
}

double rate_int8_avx512(std::int64_t rounds) {
  __m512i sums[kChains];
  unroll<kChains>([&](auto i) SHOAL_INLINE_LAMBDA { sums[i] = _mm512_setzero_si512(); });
  const __m512i x = _mm512_set1_epi8(1);
  for (std::int64_t round = 0; round < rounds; ++round) {
    unroll<kChains>([&](auto i) SHOAL_INLINE_LAMBDA {
      __m512i& sum = sums[i];
      sum = _mm512_dpbusd_epi32(sum, x, x);
      asm volatile("" : "+v"(sum));
    });
  }
  return 2.0 * 64 * kChains * static_cast<double>(rounds);
}
#else
double rate_fma_avx512(std::int64_t) { return 0; }
double rate_int8_avx512(std::int64_t) { return 0; }
#endif

}  // namespace shoal::kernels
