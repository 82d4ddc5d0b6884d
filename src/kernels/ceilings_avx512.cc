#include "kernels/ceilings_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/ceilings_inl.h"
#endif

namespace shoal::kernels {

#if defined(__x86_64__)
namespace {
// Two units of four to five cycles, twice over.
constexpr int kChains = 20;
}  // namespace

double rate_fma_avx512(std::int64_t rounds) {
  const __m512 x = _mm512_set1_ps(0x1p-20F);
  run_chains<kChains>(rounds, _mm512_setzero_ps(),
                      [x](__m512& sum) SHOAL_INLINE_LAMBDA { sum = _mm512_fmadd_ps(x, x, sum); });
  return 2.0 * 16 * kChains * static_cast<double>(rounds);
}

double rate_int8_avx512(std::int64_t rounds) {
  const __m512i x = _mm512_set1_epi8(1);
  run_chains<kChains>(rounds, _mm512_setzero_si512(),
                      [x](__m512i& sum) SHOAL_INLINE_LAMBDA { sum = _mm512_dpbusd_epi32(sum, x, x); });
  return 2.0 * 64 * kChains * static_cast<double>(rounds);
}
#else
double rate_fma_avx512(std::int64_t) { return 0; }
double rate_int8_avx512(std::int64_t) { return 0; }
#endif

}  // namespace shoal::kernels
