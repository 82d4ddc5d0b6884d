#include "kernels/attention_inl.h"
#include "kernels/vec_scalar.h"

namespace shoal::kernels {

const AttentionKernels kAttentionScalar = make_attention_kernels<VecScalar>();

}  // namespace shoal::kernels
