#if defined(__AVX2__)

#include "kernels/attention_inl.h"
#include "kernels/vec_avx2.h"

namespace shoal::kernels {

const AttentionKernels kAttentionAvx2 = make_attention_kernels<VecAvx2>();

}  // namespace shoal::kernels

#endif
