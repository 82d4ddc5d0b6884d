#include "kernels/sampling_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "kernels/attention_rig.h"

namespace shoal::kernels::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

Context on(Isa isa) {
  Context context;
  context.isa = isa;
  return context;
}

std::vector<float> logits(std::size_t n, std::uint32_t seed, float deviation = 3) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> x(n);
  for (float& v : x) v = normal(random);
  return x;
}

double reference_log_sum_exp(std::span<const float> x, double factor) {
  double best = -std::numeric_limits<double>::infinity();
  for (const float v : x) {
    if (!std::isnan(v)) best = std::max(best, static_cast<double>(v) * factor);
  }
  double sum = 0;
  for (const float v : x) {
    if (!std::isnan(v)) sum += std::exp(static_cast<double>(v) * factor - best);
  }
  return best + std::log(sum);
}

TEST(LogSumExp, MatchesTheReferenceAtAnySizeAndTemperature) {
  for (const Isa isa : isas()) {
    for (const std::size_t n : {1, 2, 15, 16, 17, 100, 1023, 1024, 1025, 2055, 50000}) {
      for (const float factor : {1.0F, 0.1F, 1.7F, 30.0F}) {
        const auto x = logits(n, static_cast<std::uint32_t>(n));
        const double wanted = reference_log_sum_exp(x, static_cast<double>(factor));
        // The maximum enters as one f32 product: 1e-7 of it; the sum errs by some 1e-6.
        const double error = std::abs(static_cast<double>(log_sum_exp(on(isa), x, factor)) - wanted);
        EXPECT_TRUE(error < 2e-6 + 2e-7 * std::abs(wanted)) << n << " " << factor << " " << isa_name(isa);
      }
    }
  }
}

TEST(LogSumExp, EmptyBannedAndBrokenLogits) {
  for (const Isa isa : isas()) {
    EXPECT_EQ(log_sum_exp(on(isa), {}), -kInf);
    EXPECT_EQ(log_sum_exp(on(isa), std::vector<float>(3000, -kInf)), -kInf);
    EXPECT_EQ(log_sum_exp(on(isa), std::vector<float>(5, kNan)), -kInf);
    auto x = logits(3000, 1);
    const float clean = log_sum_exp(on(isa), std::span<const float>(x).first(2999));
    x[2999] = kNan;
    EXPECT_EQ(log_sum_exp(on(isa), x), clean);
    x[5] = kInf;
    EXPECT_EQ(log_sum_exp(on(isa), x), kInf);
    // Everything but the last segment banned.
    std::vector<float> tail(2050, -kInf);
    tail[2049] = 7;
    EXPECT_FLOAT_EQ(log_sum_exp(on(isa), tail), 7);
  }
}

TEST(ArgMax, TakesTheLargestAndTheLowestIdOnTies) {
  for (const Isa isa : isas()) {
    EXPECT_EQ(arg_max(on(isa), {}), 0);
    for (const std::size_t n : {1, 3, 16, 17, 40, 1000}) {
      const auto x = logits(n, 5);
      EXPECT_EQ(arg_max(on(isa), x), std::max_element(x.begin(), x.end()) - x.begin());
      auto tied = x;
      tied[n - 1] = tied[n / 2] = 100;
      EXPECT_EQ(arg_max(on(isa), tied), static_cast<TokenId>(std::min(n - 1, n / 2)));
    }
    EXPECT_EQ(arg_max(on(isa), std::vector<float>(40, -kInf)), 0);
    EXPECT_EQ(arg_max(on(isa), std::vector<float>{kNan, -5, kNan, -4, kNan}), 3);
    EXPECT_EQ(arg_max(on(isa), std::vector<float>{-0.0F, 0.0F}), 0);
  }
}

TEST(TopCandidates, AreTheBestInOrderWithTiesToTheLowestId) {
  auto x = logits(5000, 8);
  for (std::size_t i = 0; i < x.size(); i += 3) x[i] = std::round(x[i]);  // many ties
  x[17] = kNan;
  x[18] = kInf;
  x[19] = -kInf;
  std::vector<Candidate> sorted;
  for (std::size_t i = 0; i < x.size(); ++i) {
    sorted.push_back({static_cast<TokenId>(i), std::isnan(x[i]) ? -kInf : x[i]});
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Candidate& a, const Candidate& b) { return a.logit > b.logit; });
  for (const std::int64_t k : {0, 1, 2, 20, 624, 626, 4999, 5000, 9000}) {
    const auto got = top_candidates(x, k);
    ASSERT_EQ(got.size(), static_cast<std::size_t>(std::min<std::int64_t>(k, 5000)));
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].id, sorted[i].id) << k << " " << i;
      ASSERT_EQ(got[i].logit, sorted[i].logit);
    }
  }
  EXPECT_TRUE(top_candidates({}, 5).empty());
  EXPECT_TRUE(top_candidates(x, -1).empty());
}

TEST(Noise, DependsOnEveryCounterAndOnNothingElse) {
  const std::uint64_t bits = noise_bits(1, 2, 3, 4);
  EXPECT_EQ(noise_bits(1, 2, 3, 4), bits);
  EXPECT_NE(noise_bits(2, 2, 3, 4), bits);
  EXPECT_NE(noise_bits(1, 3, 3, 4), bits);
  EXPECT_NE(noise_bits(1, 2, 4, 4), bits);
  EXPECT_NE(noise_bits(1, 2, 3, 5), bits);
  EXPECT_NE(noise_bits(0, 0, 1, 0), noise_bits(0, 1, 0, 0));
  // A change would break the continuation of answers begun by another version.
  EXPECT_EQ(noise_bits(0, 0, 0, 0), 0x2130748aaac80268U);
  EXPECT_EQ(noise_bits(42, 1, 7, 128255), 0xce78f8d95ddbea2aU);
}

TEST(Noise, EveryBitIsSetHalfOfTheTime) {
  int ones[64] = {};
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    const std::uint64_t bits = noise_bits(9, 0, static_cast<std::uint64_t>(i % 100), i / 100);
    for (int b = 0; b < 64; ++b) ones[b] += static_cast<int>((bits >> b) & 1U);
  }
  // 5 deviations of a fair coin: 5 * sqrt(20000) / 2 = 354.
  for (const int count : ones) EXPECT_LT(std::abs(count - kDraws / 2), 354);
}

TEST(Noise, GumbelHasItsMeanAndVariance) {
  double sum = 0;
  double squares = 0;
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) {
    const double g = static_cast<double>(gumbel(3, 0, 0, i));
    ASSERT_TRUE(std::isfinite(g));
    sum += g;
    squares += g * g;
  }
  const double mean = sum / kDraws;
  // Mean 0.57722, variance pi^2 / 6 = 1.64493; 5 standard errors are 0.020 and 0.054.
  EXPECT_NEAR(mean, 0.57722, 0.020);
  EXPECT_NEAR(squares / kDraws - mean * mean, 1.64493, 0.054);
}

// All tokens one by one, as the definition says.
TokenId plain_gumbel_max(std::span<const float> x, float factor, std::uint64_t seed, std::uint64_t index) {
  TokenId best = 0;
  float best_value = -kInf;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float value = x[i] * factor + gumbel(seed, 1, index, static_cast<TokenId>(i));
    if (value > best_value) {
      best_value = value;
      best = static_cast<TokenId>(i);
    }
  }
  return best;
}

TEST(GumbelMax, SkipsNoTokenThatWouldHaveWon) {
  for (const Isa isa : isas()) {
    for (const float deviation : {0.0F, 0.5F, 3.0F, 10.0F}) {
      for (const float factor : {1.0F, 0.2F, 10.0F}) {
        for (const std::size_t n : {1, 17, 500, 2003}) {
          auto x = logits(n, 3, deviation);
          if (n > 20) {
            x[11] = kNan;
            x[12] = -kInf;
          }
          for (std::uint64_t index = 0; index < 20; ++index) {
            ASSERT_EQ(gumbel_max(on(isa), x, factor, 77, 1, index), plain_gumbel_max(x, factor, 77, index))
                << isa_name(isa) << " deviation " << deviation << " factor " << factor << " n " << n;
          }
        }
      }
    }
  }
}

TEST(GumbelMax, DrawsFromTheSoftmax) {
  // 40 tokens, probabilities from about 1e-3 to 0.2; 20,000 draws with fixed seeds.
  const auto x = logits(40, 19, 1.5F);
  constexpr float kFactor = 0.8F;
  constexpr int kDraws = 20000;
  const double total = reference_log_sum_exp(x, static_cast<double>(kFactor));
  const Context context = on(isas().back());
  std::vector<int> counts(x.size());
  for (int i = 0; i < kDraws; ++i) {
    ++counts[static_cast<std::size_t>(gumbel_max(context, x, kFactor, 5 + static_cast<std::uint64_t>(i % 7),
                                                 0, static_cast<std::uint64_t>(i)))];
  }
  double chi_square = 0;
  int cells = 0;
  double rare_expected = 0;
  double rare_count = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected =
        kDraws * std::exp(static_cast<double>(x[i]) * static_cast<double>(kFactor) - total);
    if (expected < 10) {  // pooled: the statistic needs cells of some size
      rare_expected += expected;
      rare_count += counts[i];
      continue;
    }
    chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
    ++cells;
  }
  if (rare_expected > 0)
    chi_square += (rare_count - rare_expected) * (rare_count - rare_expected) / rare_expected;
  ASSERT_GT(cells, 20);
  // 99.9 % of a chi-square with 39 degrees of freedom lie below 72.1.
  EXPECT_LT(chi_square, 72.1);
}

TEST(GumbelMax, TakesTheOnlyTokenThatIsAllowed) {
  for (const Isa isa : isas()) {
    std::vector<float> x(100, -kInf);
    x[63] = -40;
    EXPECT_EQ(gumbel_max(on(isa), x, 1, 1, 0, 0), 63);
    x[70] = kInf;
    EXPECT_EQ(gumbel_max(on(isa), x, 1, 1, 0, 0), 70);
    EXPECT_EQ(gumbel_max(on(isa), std::vector<float>(10, -kInf), 1, 1, 0, 0), 0);
    EXPECT_EQ(gumbel_max(on(isa), std::vector<float>(10, kNan), 1, 1, 0, 0), 0);
    EXPECT_EQ(gumbel_max(on(isa), {}, 1, 1, 0, 0), 0);
  }
}

}  // namespace
}  // namespace shoal::kernels::test
