#include "kernels/elementwise_inl.h"
#include "kernels/vec_scalar.h"

namespace shoal::kernels {

const ElementwiseKernels kElementwiseScalar = make_elementwise_kernels<VecScalar>();

}  // namespace shoal::kernels
