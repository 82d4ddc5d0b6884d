// The prefill kernels of the AMX path for machines without a tile unit. The definition here comes before the
// library's at link time, so every test of this program that asks for Isa::kAmx runs the product's kernel: on
// tiles where the processor has them, emulated elsewhere.

#include "kernels/matmul_tiles_amx.h"

#include "kernels/emulated_tiles.h"
#include "kernels/isa.h"
#include "kernels/tiles_amx.h"

namespace shoal::kernels {

PanelKernel amx_kernel(DType type) {
  return detected_isa() >= Isa::kAmx ? tile_kernel<AmxTiles>(type) : tile_kernel<EmulatedTiles>(type);
}

}  // namespace shoal::kernels
