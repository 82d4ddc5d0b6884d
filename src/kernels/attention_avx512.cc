#if defined(__AVX512F__)

#include "kernels/attention_chunks_inl.h"
#include "kernels/attention_inl.h"
#include "kernels/vec_avx512.h"

namespace shoal::kernels {

const AttentionKernels kAttentionAvx512 = make_attention_kernels<VecAvx512>();
const ChunkedAttention kChunkedAvx512 = make_chunk_attention<VecAvx512>();

}  // namespace shoal::kernels

#endif
