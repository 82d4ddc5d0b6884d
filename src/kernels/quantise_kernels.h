// What an instruction set provides to change weights into quantised blocks while they are packed.
//
// Thread-safety: the tables are constant, the functions pure.
// Invariants: the bits are the same for every instruction set.

#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/isa.h"
#include "tensor/dtype.h"

namespace shoal::kernels {

struct Quantised {
  float d = 0;  // before it is rounded to 16 bits
  std::uint8_t q[32];
};

struct QuantiseKernels {
  // 32 floats. `to` is Q8_0 or Q4_0.
  Quantised (*f32)(DType to, const float* x);
  // Elements k to k + 31 of a row of bf16.
  Quantised (*bf16)(DType to, const std::byte* row, std::int64_t k);
};

const QuantiseKernels& quantise_kernels(Isa isa);

extern const QuantiseKernels kQuantiseAvx2;
extern const QuantiseKernels kQuantiseAvx512;

}  // namespace shoal::kernels
