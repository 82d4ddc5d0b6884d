#if defined(__AVX512F__)

#include "kernels/elementwise_inl.h"
#include "kernels/vec_avx512.h"

namespace shoal::kernels {

const ElementwiseKernels kElementwiseAvx512 = make_elementwise_kernels<VecAvx512>();

}  // namespace shoal::kernels

#endif
