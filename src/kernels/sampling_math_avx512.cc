#if defined(__AVX512F__)

#include "kernels/sampling_math_inl.h"
#include "kernels/vec_avx512.h"

namespace shoal::kernels {
namespace {

class HashAvx512 {
 public:
  explicit HashAvx512(std::uint64_t key)
      : low_(_mm512_add_epi64(constant(key), _mm512_mullo_epi64(constant(kNoiseStep),
                                                                _mm512_setr_epi64(1, 2, 3, 4, 5, 6, 7, 8)))) {
  }
  void advance() { low_ = _mm512_add_epi64(low_, constant(16 * kNoiseStep)); }
  __m512 complement() const {
    const __m512i high = _mm512_add_epi64(low_, constant(8 * kNoiseStep));
    // The odd dwords of both, complemented: the high halves of 16 hashes.
    const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    const __m512i top = _mm512_permutex2var_epi32(mixed(low_), odd, mixed(high));
    const __m512 x = _mm512_cvtepu32_ps(_mm512_xor_si512(top, _mm512_set1_epi32(-1)));
    return _mm512_mul_ps(x, _mm512_set1_ps(0x1p-32F));
  }

 private:
  static __m512i constant(std::uint64_t x) { return _mm512_set1_epi64(static_cast<long long>(x)); }
  static __m512i mixed(__m512i z) {
    z = _mm512_mullo_epi64(_mm512_xor_si512(z, _mm512_srli_epi64(z, 30)), constant(kNoiseMultiplier1));
    z = _mm512_mullo_epi64(_mm512_xor_si512(z, _mm512_srli_epi64(z, 27)), constant(kNoiseMultiplier2));
    return _mm512_xor_si512(z, _mm512_srli_epi64(z, 31));
  }

  __m512i low_;  // counters of the next eight tokens; the eight after are a constant away
};

}  // namespace

const SamplingKernels kSamplingAvx512 = make_sampling_kernels<VecAvx512, HashAvx512>();

}  // namespace shoal::kernels

#endif
