// The tile unit's attention on an emulated unit (emulated_tiles.h).
//
// Thread-safety: any thread; needs a CPU with AVX512-BF16.

#pragma once

#include "kernels/attention_kernels.h"

namespace shoal::kernels::test {

const ChunkedAttention& emulated_tile_attention();

}  // namespace shoal::kernels::test
