#if defined(__AVX512F__)

#include "kernels/sampling_math_inl.h"
#include "kernels/vec_avx512.h"

namespace shoal::kernels {
namespace {

struct HashAvx512 {
  static __m512 complement(std::uint64_t key, std::int64_t token) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(eight(key, token)), eight(key, token + 8), 1);
  }

 private:
  static __m256 eight(std::uint64_t key, std::int64_t token) {
    const __m512i lane = _mm512_setr_epi64(1, 2, 3, 4, 5, 6, 7, 8);
    const __m512i counter = _mm512_add_epi64(_mm512_set1_epi64(token), lane);
    __m512i z = _mm512_add_epi64(_mm512_set1_epi64(static_cast<long long>(key)),
                                 _mm512_mullo_epi64(counter, constant(kNoiseStep)));
    z = _mm512_mullo_epi64(_mm512_xor_si512(z, _mm512_srli_epi64(z, 30)), constant(kNoiseMultiplier1));
    z = _mm512_mullo_epi64(_mm512_xor_si512(z, _mm512_srli_epi64(z, 27)), constant(kNoiseMultiplier2));
    z = _mm512_xor_si512(z, _mm512_srli_epi64(z, 31));
    const __m512i high = _mm512_srli_epi64(_mm512_xor_si512(z, _mm512_set1_epi64(-1)), 32);
    return _mm256_mul_ps(_mm512_cvtepu64_ps(high), _mm256_set1_ps(0x1p-32F));
  }
  static __m512i constant(std::uint64_t x) { return _mm512_set1_epi64(static_cast<long long>(x)); }
};

}  // namespace

const SamplingKernels kSamplingAvx512 = make_sampling_kernels<VecAvx512, HashAvx512>();

}  // namespace shoal::kernels

#endif
