#include "tensor/half.h"

namespace shoal {

float f16_to_f32(F16 v) {
  const std::uint32_t sign = static_cast<std::uint32_t>(v & 0x8000U) << 16;
  const std::uint32_t exponent = (v >> 10) & 0x1fU;
  std::uint32_t mantissa = v & 0x3ffU;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  if (mantissa == 0) return std::bit_cast<float>(sign);
  // Subnormal half: mantissa x 2^-24, exact in f32.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
  return sign != 0 ? -magnitude : magnitude;
}

F16 f32_to_f16(float f) {
  const auto bits = std::bit_cast<std::uint32_t>(f);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<F16>(sign | 0x7e00U);
  // 65520 is the least value that rounds past the largest half, 65504.
  if (magnitude >= 0x477ff000U) return static_cast<F16>(sign | 0x7c00U);
  if (magnitude <
      0x38800000U) {  // below 2^-14: subnormal; adding 0.5 x 2^-23/2^-24 aligns and rounds the mantissa
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<F16>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U));
  }
  const std::uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
  return static_cast<F16>(sign | ((rounded - 0x38000000U) >> 13));
}

}  // namespace shoal
