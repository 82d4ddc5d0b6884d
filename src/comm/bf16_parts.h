// Values that travel as bf16: rounded to nearest even on their way out, added up in f32.
//
// Thread-safety: pure.

#pragma once

#include <cstdint>
#include <span>

#include "tensor/half.h"

namespace shoal::comm {

void round_to_bf16(const float* from, std::int64_t n, Bf16* to);
void widen_bf16(const Bf16* from, std::int64_t n, float* to);
// out[i] = parts[0][i] + parts[1][i] + ..., in this order.
void add_bf16_parts(std::span<const Bf16* const> parts, std::int64_t n, float* out);

}  // namespace shoal::comm
