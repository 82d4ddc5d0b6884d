#if defined(__AVX2__)

#include "kernels/elementwise_inl.h"
#include "kernels/vec_avx2.h"

namespace shoal::kernels {

const ElementwiseKernels kElementwiseAvx2 = make_elementwise_kernels<VecAvx2>();

}  // namespace shoal::kernels

#endif
