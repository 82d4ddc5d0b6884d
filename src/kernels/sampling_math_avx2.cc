#if defined(__AVX2__)

#include "kernels/sampling_math_inl.h"
#include "kernels/vec_avx2.h"

namespace shoal::kernels {

// AVX2 has no 64-bit multiply: one hash at a time costs the same.
const SamplingKernels kSamplingAvx2 = make_sampling_kernels<VecAvx2, HashOneByOne<VecAvx2>>();

}  // namespace shoal::kernels

#endif
