#if defined(__AVX512BF16__)

#include "kernels/attention_tiles_avx512bf16.h"
#include "kernels/emulated_tile_attention.h"
#include "kernels/emulated_tiles.h"

namespace shoal::kernels::test {

const ChunkedAttention& emulated_tile_attention() {
  static constexpr ChunkedAttention kTiles = make_tile_attention<EmulatedTiles>();
  return kTiles;
}

}  // namespace shoal::kernels::test

#endif
