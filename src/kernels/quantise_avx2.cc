#if defined(__AVX2__)

#include "kernels/quantise_inl.h"

namespace shoal::kernels {

const QuantiseKernels kQuantiseAvx2 = {quantise_as, quantise_bf16_as};

}  // namespace shoal::kernels

#endif
