#if defined(__AVX512F__)

#include "kernels/quantise_inl.h"

namespace shoal::kernels {

const QuantiseKernels kQuantiseAvx512 = {quantise_as, quantise_bf16_as};

}  // namespace shoal::kernels

#endif
