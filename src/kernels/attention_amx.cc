#include "kernels/attention_kernels.h"

#if defined(__x86_64__)
#include "kernels/attention_tiles_avx512bf16.h"
#include "kernels/tiles_amx.h"
#endif

namespace shoal::kernels {

#if defined(__x86_64__)
const ChunkedAttention* amx_attention() {
  static constexpr ChunkedAttention kAmx = make_tile_attention<AmxTiles>();
  return &kAmx;
}
#else
const ChunkedAttention* amx_attention() { return nullptr; }
#endif

}  // namespace shoal::kernels
