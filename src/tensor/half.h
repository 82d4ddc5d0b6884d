// Scalar conversions between f32, bf16 and IEEE half, bit exact, for code that is not a kernel and for the
// reference kernels.
//
// Thread-safety: pure functions.
// Rounding: to nearest, ties to even; NaN stays NaN.

#pragma once

#include <bit>
#include <cstdint>

namespace shoal {

using Bf16 = std::uint16_t;
using F16 = std::uint16_t;

constexpr float bf16_to_f32(Bf16 v) { return std::bit_cast<float>(static_cast<std::uint32_t>(v) << 16); }

constexpr Bf16 f32_to_bf16(float f) {
  const auto bits = std::bit_cast<std::uint32_t>(f);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<Bf16>((bits >> 16) | 0x40U);
  return static_cast<Bf16>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

float f16_to_f32(F16 v);
F16 f32_to_f16(float f);

}  // namespace shoal
