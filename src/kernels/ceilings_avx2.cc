#include "kernels/ceilings_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/ceilings_inl.h"
#endif

namespace shoal::kernels {

#if defined(__x86_64__)
namespace {
// Two units of four to five cycles: ten chains keep both busy, and twelve still leave registers for operands.
constexpr int kChains = 12;
}  // namespace

double rate_fma_avx2(std::int64_t rounds) {
  const __m256 x = _mm256_set1_ps(0x1p-20F);
  run_chains<kChains>(rounds, _mm256_setzero_ps(),
                      [x](__m256& sum) SHOAL_INLINE_LAMBDA { sum = _mm256_fmadd_ps(x, x, sum); });
  return 2.0 * 8 * kChains * static_cast<double>(rounds);
}

// VPMADDUBSW, VPADDW: the least that products of bytes take; codes of 4 bits fit 16-bit sums for a while.
double rate_int8_avx2(std::int64_t rounds) {
  __m256i x = _mm256_set1_epi8(1);
  run_chains<kChains>(rounds, _mm256_setzero_si256(), [&x](__m256i& sum) SHOAL_INLINE_LAMBDA {
    asm volatile("" : "+v"(x));  // or one product would serve all chains
    sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(x, x));
  });
  return 2.0 * 32 * kChains * static_cast<double>(rounds);
}
#else
double rate_fma_avx2(std::int64_t) { return 0; }
double rate_int8_avx2(std::int64_t) { return 0; }
#endif

}  // namespace shoal::kernels
