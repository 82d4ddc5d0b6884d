#include "kernels/sampling_math_inl.h"
#include "kernels/vec_scalar.h"

namespace shoal::kernels {

const SamplingKernels kSamplingScalar = make_sampling_kernels<VecScalar, HashOneByOne<VecScalar>>();

}  // namespace shoal::kernels
