// Floats to blocks of 32 by ggml's reference formulas, and blocks of one format as blocks of another: what
// packing needs to change the type of weights on the way.
//
// Thread-safety: pure functions.
// Invariants: quantised bytes equal those of ggml's reference quantiser, rounding of the scale included.

#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/isa.h"
#include "kernels/weights_block.h"
#include "tensor/dtype.h"

namespace shoal::kernels {

// True for Q4_0 and Q8_0.
bool can_quantise(DType type);

// 32 floats. `type` must satisfy can_quantise.
WeightBlock quantise_block(DType type, const float* x);
// n floats, a multiple of 32, as the bytes a file holds.
void quantise_row(DType type, const float* x, std::int64_t n, std::byte* out);

// The type to pack weights of `type` as, where no product reads its own: the same values exactly for
// Q3_K (Q6_K has more codes) and IQ4_NL (its levels are 8-bit integers: Q8_0); within 2^-12 of each value for
// IQ4_XS (Q8_0, whose scale is 16 bits wide) and 2^-11 for Q2_K (F16). Itself for all others.
DType packed_type(DType type);

// Whether pack() can read `from` and write `to`: the same; the pair that packed_type() gives; or anything
// that can be dequantised into F32, F16, BF16 and the types of can_quantise.
bool can_convert(DType from, DType to);

// Elements k to k + 31 of a row of `from`, as a block of the quantised type `to`. can_convert(from, to).
// The bits do not depend on isa.
WeightBlock convert_block(DType from, DType to, const std::byte* row, std::int64_t k, Isa isa = Isa::kScalar);
// n elements from k on as `to`, one of F32, F16 and BF16. k is a multiple of 32 where `from` is quantised,
// and n at most 32.
void convert_values(DType from, DType to, const std::byte* row, std::int64_t k, std::int64_t n,
                    std::byte* out);

}  // namespace shoal::kernels
