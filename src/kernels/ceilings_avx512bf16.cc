#include "kernels/ceilings_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/ceilings_inl.h"
#endif

namespace shoal::kernels {

#if defined(__x86_64__)
double rate_bf16_avx512bf16(std::int64_t rounds) {
  constexpr int kChains = 20;
  const auto x = (__m512bh)_mm512_set1_epi16(0x3580);  // 2^-20
  run_chains<kChains>(rounds, _mm512_setzero_ps(),
                      [x](__m512& sum) SHOAL_INLINE_LAMBDA { sum = _mm512_dpbf16_ps(sum, x, x); });
  return 2.0 * 32 * kChains * static_cast<double>(rounds);
}
#else
double rate_bf16_avx512bf16(std::int64_t) { return 0; }
#endif

}  // namespace shoal::kernels
