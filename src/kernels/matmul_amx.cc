#include "kernels/matmul_kernels.h"

#if defined(__x86_64__)
#include "kernels/matmul_tiles_amx.h"
#include "kernels/tiles_amx.h"
#endif

namespace shoal::kernels {

#if defined(__x86_64__)
PanelKernel amx_kernel(DType type) { return tile_kernel<AmxTiles>(type); }
#else
PanelKernel amx_kernel(DType) { return nullptr; }
#endif

}  // namespace shoal::kernels
