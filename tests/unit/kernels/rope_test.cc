#include "kernels/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace shoal::kernels {
namespace {

Rope made(const RopeSpec& spec) {
  auto rope = make_rope(spec);
  EXPECT_TRUE(rope.ok()) << rope.status().message();
  return rope.ok() ? *rope : Rope{};
}

void expect_frequencies(const Rope& rope, const std::vector<double>& wanted) {
  ASSERT_EQ(rope.inverse_frequency.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double error = std::abs(static_cast<double>(rope.inverse_frequency[i]) / wanted[i] - 1);
    EXPECT_TRUE(error < 1e-6) << "pair " << i << ": " << rope.inverse_frequency[i] << ", by hand "
                              << wanted[i];
  }
}

TEST(MakeRope, PlainFrequenciesFallGeometrically) {
  const Rope rope = made({.base = 10000, .rotary_dim = 8});
  expect_frequencies(rope, {1, 0.1, 0.01, 0.001});
  EXPECT_EQ(rope.magnitude, 1.0F);
  EXPECT_TRUE(rope.adjacent_pairs);
}

TEST(MakeRope, LinearScalingDividesEveryFrequency) {
  expect_frequencies(made({.base = 10000, .rotary_dim = 8, .scaling = RopeScaling::kLinear, .factor = 4}),
                     {0.25, 0.025, 0.0025, 0.00025});
}

TEST(MakeRope, DivisorsApplyPairByPair) {
  expect_frequencies(made({.base = 10000, .rotary_dim = 8, .frequency_divisors = {1, 2, 4, 8}}),
                     {1, 0.05, 0.0025, 0.000125});
}

// base 10000, 8 dimensions, context 2 pi 1000 (so that pair i turns 1000 * 10^-i times):
// pair_turning(t) = 8 ln(1000 / t) / (2 ln 10000) = log10(1000 / t). beta_fast 100: pair 1; beta_slow 1:
// pair 3. Ramp 0, 0, 1/2, 1: pair 2 keeps half of 0.01 and takes half of 0.0025.
TEST(MakeRope, YarnKeepsFastPairsAndInterpolatesSlowOnes) {
  RopeSpec spec{.base = 10000, .rotary_dim = 8, .scaling = RopeScaling::kYarn, .factor = 4};
  spec.original_context =
      2 * M_PI * 1000 * 1.0000001;  // whole pair numbers survive the rounding down of the logarithm
  spec.beta_fast = 100;
  spec.beta_slow = 1.0000002;
  const Rope rope = made(spec);
  expect_frequencies(rope, {1, 0.1, 0.00625, 0.00025});
  EXPECT_NEAR(rope.magnitude, 1 + 0.1 * std::log(4.0), 1e-6);
}

TEST(MakeRope, YarnWithoutExtrapolationIsLinear) {
  RopeSpec spec{.base = 10000, .rotary_dim = 8, .scaling = RopeScaling::kYarn, .factor = 4};
  spec.original_context = 4096;
  spec.extrapolation = 0;
  spec.attention_factor = 1.5;
  const Rope rope = made(spec);
  expect_frequencies(rope, {0.25, 0.025, 0.0025, 0.00025});
  EXPECT_EQ(rope.magnitude, 1.5F);
}

// Context 2 pi 100: pair i turns 100 * 10^-i times. low 0.5, high 5.5: pairs 0 and 1 (100, 10 turns) kept,
// pair 2 (1 turn) keeps (1 - 0.5) / 5 = 0.1 of 0.01 and takes 0.9 of 0.00125, pair 3 (0.1 turns) divided.
TEST(MakeRope, Llama3BlendsBetweenItsTwoWavelengths) {
  RopeSpec spec{.base = 10000, .rotary_dim = 8, .scaling = RopeScaling::kLlama3, .factor = 8};
  spec.original_context = 2 * M_PI * 100;
  spec.low_freq_factor = 0.5;
  spec.high_freq_factor = 5.5;
  expect_frequencies(made(spec), {1, 0.1, 0.001 + 0.9 * 0.00125, 0.000125});
}

// Llama 3.1's own numbers; its file carries the divisors 1 for pairs 0-28 and 8 from pair 35 on.
TEST(MakeRope, Llama31KeepsItsFirstPairsAndDividesItsLastByEight) {
  RopeSpec spec{.base = 500000, .rotary_dim = 128, .scaling = RopeScaling::kLlama3, .factor = 8};
  spec.original_context = 8192;
  const Rope scaled = made(spec);
  spec.scaling = RopeScaling::kNone;
  const Rope plain = made(spec);
  for (std::size_t i = 0; i < 64; ++i) {
    const float divisor = plain.inverse_frequency[i] / scaled.inverse_frequency[i];
    if (i <= 28) {
      EXPECT_FLOAT_EQ(divisor, 1.0F) << i;
    } else if (i >= 36) {
      EXPECT_FLOAT_EQ(divisor, 8.0F) << i;
    } else {
      EXPECT_TRUE(divisor > 1 && divisor <= 8) << i;
    }
  }
}

TEST(MakeRope, RefusesNumbersThatCannotBeUsedAndNamesThem) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  auto message = [](const RopeSpec& spec) { return make_rope(spec).status().message(); };
  EXPECT_NE(message({.rotary_dim = 7}).find("7 rotary dimensions"), std::string::npos);
  EXPECT_NE(message({.base = nan, .rotary_dim = 8}).find("base"), std::string::npos);
  EXPECT_NE(message({.base = 0, .rotary_dim = 8}).find("base"), std::string::npos);
  EXPECT_NE(message({.rotary_dim = 8, .scaling = RopeScaling::kLinear, .factor = 0}).find("factor"),
            std::string::npos);
  EXPECT_NE(message({.rotary_dim = 8, .scaling = RopeScaling::kYarn, .factor = 2}).find("original context"),
            std::string::npos);
  EXPECT_NE(message({.rotary_dim = 8, .frequency_divisors = {1, 2}}).find("2 frequency divisors for 4 pairs"),
            std::string::npos);
  EXPECT_NE(message({.rotary_dim = 4, .frequency_divisors = {1, 0}}).find("divisor"), std::string::npos);
  RopeSpec inverted{.rotary_dim = 8, .scaling = RopeScaling::kLlama3, .factor = 8, .original_context = 8192};
  inverted.low_freq_factor = 4;
  EXPECT_NE(message(inverted).find("high_freq_factor"), std::string::npos);
  RopeSpec flat{
      .base = 1, .rotary_dim = 8, .scaling = RopeScaling::kYarn, .factor = 2, .original_context = 10};
  EXPECT_NE(message(flat).find("base above 1"), std::string::npos);
}

}  // namespace
}  // namespace shoal::kernels
