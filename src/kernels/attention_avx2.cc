#if defined(__AVX2__)

#include "kernels/attention_chunks_inl.h"
#include "kernels/attention_inl.h"
#include "kernels/vec_avx2.h"

namespace shoal::kernels {

const AttentionKernels kAttentionAvx2 = make_attention_kernels<VecAvx2>();
const ChunkedAttention kChunkedAvx2 = make_chunk_attention<VecAvx2>();

}  // namespace shoal::kernels

#endif
