#include "tensor/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>

namespace shoal {
namespace {

// Value of a half by the definition of the format, in arithmetic that rounds nowhere.
double half_by_definition(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return fraction == 0 ? sign * HUGE_VAL : NAN;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(Half, EveryF16WidensToItsValue) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<F16>(bits);
    const double want = half_by_definition(half);
    const float got = f16_to_f32(half);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
    } else {
      ASSERT_EQ(got, want) << bits;
      ASSERT_EQ(std::signbit(got), std::signbit(want)) << bits;
    }
  }
}

TEST(Half, EveryF16SurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<F16>(bits);
    const F16 back = f32_to_f16(f16_to_f32(half));
    if (std::isnan(f16_to_f32(half))) {
      ASSERT_TRUE(std::isnan(f16_to_f32(back))) << bits;
    } else {
      ASSERT_EQ(back, half) << bits;
    }
  }
}

// Between neighbours, the nearest is taken and the middle goes to the even one.
TEST(Half, F16RoundsToNearestTiesToEven) {
  for (std::uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const auto low = static_cast<F16>(bits);
    const auto high = static_cast<F16>(bits + 1);
    const float a = f16_to_f32(low);
    const float b = f16_to_f32(high);
    const float middle = a + (b - a) / 2;  // exact: halves have 13 bits to spare in a float
    const F16 even = (bits & 1) == 0 ? low : high;
    ASSERT_EQ(f32_to_f16(middle), even) << bits;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, a)), low) << bits;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, b)), high) << bits;
    ASSERT_EQ(f32_to_f16(-middle), even | 0x8000) << bits;
  }
}

TEST(Half, F16OverflowsToInfinityFromTheMiddleOn) {
  EXPECT_EQ(f32_to_f16(65519.996F), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0F), 0x7c00);
  EXPECT_EQ(f32_to_f16(-1e30F), 0xfc00);
  EXPECT_EQ(f32_to_f16(std::ldexp(1.0F, -26)), 0);
}

TEST(Half, EveryBf16SurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto value = static_cast<Bf16>(bits);
    const float wide = bf16_to_f32(value);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(wide), bits << 16);
    if (std::isnan(wide)) {
      ASSERT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(wide)))) << bits;
    } else {
      ASSERT_EQ(f32_to_bf16(wide), value) << bits;
    }
  }
}

TEST(Half, Bf16RoundsToNearestTiesToEven) {
  for (std::uint32_t bits = 0; bits < 0x7f7f; ++bits) {
    const auto middle = std::bit_cast<float>(bits << 16 | 0x8000U);
    const auto even = static_cast<Bf16>((bits & 1) == 0 ? bits : bits + 1);
    ASSERT_EQ(f32_to_bf16(middle), even) << bits;
    ASSERT_EQ(f32_to_bf16(std::bit_cast<float>(bits << 16 | 0x7fffU)), bits) << bits;
    ASSERT_EQ(f32_to_bf16(std::bit_cast<float>(bits << 16 | 0x8001U)), bits + 1) << bits;
  }
}

TEST(Half, SmallestNanPayloadsStayNan) {
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001U)))));
  EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(std::bit_cast<float>(0x7f800001U)))));
}

}  // namespace
}  // namespace shoal
