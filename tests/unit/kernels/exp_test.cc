#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/exp_inl.h"
#include "kernels/vec_scalar.h"

namespace shoal::kernels {
namespace {

// The polynomials and reductions, on the portable vector. The SIMD ones run the same code; that they give
// what they should is seen through attention, activations and log-sum-exp.

// Error in units of the last place of the true value.
double ulps(float got, double wanted) {
  const double unit = std::ldexp(1.0, std::ilogb(wanted) - 23);
  return std::abs(static_cast<double>(got) - wanted) / unit;
}

TEST(Exp, Exp2IsWithinTwoUnitsBelowZero) {
  for (int i = 0; i <= 125 * 64; ++i) {
    const float x = -static_cast<float>(i) / 64 - 0.001F * static_cast<float>(i % 15);
    ASSERT_TRUE(ulps(exp2_of<VecScalar>(x), std::exp2(static_cast<double>(x))) < 2) << x;
  }
}

TEST(Exp, Exp2OfZeroIsOneAndOfMinusInfinityZero) {
  EXPECT_EQ(exp2_of<VecScalar>(0), 1.0F);
  EXPECT_EQ(exp2_of<VecScalar>(-0.0F), 1.0F);
  EXPECT_EQ(exp2_of<VecScalar>(-1000), 0.0F);
  EXPECT_EQ(exp2_of<VecScalar>(-std::numeric_limits<float>::infinity()), 0.0F);
  EXPECT_TRUE(std::isnan(exp2_of<VecScalar>(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Exp, ExpIsWithinTwoUnitsOverItsRange) {
  for (int i = -86 * 64; i <= 88 * 64; ++i) {
    const float x = static_cast<float>(i) / 64 + 0.0003F * static_cast<float>(i % 31);
    ASSERT_TRUE(ulps(exp_of<VecScalar>(x), std::exp(static_cast<double>(x))) < 2) << x;
  }
  EXPECT_EQ(exp_of<VecScalar>(1000), std::numeric_limits<float>::infinity());
  EXPECT_EQ(exp_of<VecScalar>(-1000), 0.0F);
  EXPECT_EQ(exp_of<VecScalar>(0), 1.0F);
  EXPECT_TRUE(std::isnan(exp_of<VecScalar>(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Exp, TanhIsWithinFourUnits) {
  for (int i = -1200; i <= 1200; ++i) {
    if (i == 0) continue;
    const float x = static_cast<float>(i) / 100;
    ASSERT_TRUE(ulps(tanh_of<VecScalar>(x), std::tanh(static_cast<double>(x))) < 4) << x;
  }
  EXPECT_EQ(tanh_of<VecScalar>(0), 0.0F);
  EXPECT_EQ(tanh_of<VecScalar>(200), 1.0F);
  EXPECT_EQ(tanh_of<VecScalar>(-200), -1.0F);
  EXPECT_TRUE(std::isnan(tanh_of<VecScalar>(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
}  // namespace shoal::kernels
