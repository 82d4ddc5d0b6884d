#include "kernels/ceilings_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/unroll_inl.h"
#endif

namespace shoal::kernels {

#if defined(__x86_64__)
double rate_bf16_avx512bf16(std::int64_t rounds) {
  constexpr int kChains = 20;
  __m512 sums[kChains];
  unroll<kChains>([&](auto i) SHOAL_INLINE_LAMBDA { sums[i] = _mm512_setzero_ps(); });
  const auto x = (__m512bh)_mm512_set1_epi16(0x3580);  // 2^-20
  for (std::int64_t round = 0; round < rounds; ++round) {
    unroll<kChains>([&](auto i) SHOAL_INLINE_LAMBDA {
      __m512& sum = sums[i];
      sum = _mm512_dpbf16_ps(sum, x, x);
      asm volatile("" : "+v"(sum));
    });
  }
  return 2.0 * 32 * kChains * static_cast<double>(rounds);
}
#else
double rate_bf16_avx512bf16(std::int64_t) { return 0; }
#endif

}  // namespace shoal::kernels
