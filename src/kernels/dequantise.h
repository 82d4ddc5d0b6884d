// Rows of quantised or half-precision values back to f32, bit for bit as ggml's reference does.
//
// Thread-safety: pure functions.

#pragma once

#include <cstddef>
#include <cstdint>

#include "core/expected.h"
#include "kernels/weights_block.h"
#include "tensor/dtype.h"

namespace shoal::kernels {

bool can_dequantise(DType type);

// source: one row of n elements in `type`; n is a multiple of block_elements(type). out: n floats.
// `type` must satisfy can_dequantise.
void dequantise_row(DType type, const std::byte* source, std::int64_t n, float* out);

// out: 32 floats. `type` must have a scheme.
void block_to_f32(DType type, const WeightBlock& block, float* out);

}  // namespace shoal::kernels
