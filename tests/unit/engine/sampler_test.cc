#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "kernels/isa.h"

namespace shoal::engine {
namespace {

// SamplingParams to be written with designated initialisers: every member has one.
struct Params {
  float temperature = 1;
  std::int32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
  std::vector<std::pair<TokenId, float>> logit_bias = {};
  std::uint64_t seed = 0;
  std::uint32_t choice = 0;
  std::int32_t min_tokens = 0;
  std::vector<TokenId> stop_ids = {};
  std::int32_t logprobs = -1;

  operator SamplingParams() const {
    return {temperature, top_k, top_p,  min_p,      repetition_penalty, frequency_penalty, presence_penalty,
            logit_bias,  seed,  choice, min_tokens, stop_ids,           logprobs};
  }
};

kernels::Context context() {
  kernels::Context context;
  context.isa = kernels::detected_isa();
  return context;
}

std::vector<float> wavy_logits(std::size_t vocabulary) {
  std::vector<float> logits(vocabulary);
  for (std::size_t i = 0; i < vocabulary; ++i) logits[i] = 3 * std::sin(static_cast<float>(i) * 1.7F);
  return logits;
}

TokenId draw(Params params, std::vector<float> logits, std::vector<TokenId> prompt = {},
             std::vector<TokenId> output = {}) {
  Sampler sampler(params, prompt, output);
  return sampler.sample(context(), logits).id;
}

// How often each id comes over many seeds.
std::map<TokenId, int> histogram(Params params, const std::vector<float>& logits, int draws) {
  std::map<TokenId, int> counts;
  for (int i = 0; i < draws; ++i) {
    params.seed = static_cast<std::uint64_t>(i);
    ++counts[draw(params, logits)];
  }
  return counts;
}

TEST(Sampler, TemperatureZeroTakesTheLargestAndTheLowestIdOnTies) {
  EXPECT_EQ(draw({.temperature = 0}, {1, 5, 3, 5}), 1);
  EXPECT_EQ(draw({.temperature = 1e-9F}, {1, 5, 3, 5}), 1);
}

TEST(Sampler, DrawsFromTheSoftmax) {
  const std::vector<float> logits = {0, std::log(2.0F), std::log(5.0F)};
  const auto counts = histogram({.temperature = 1}, logits, 8000);
  EXPECT_NEAR(counts.at(0), 1000, 150);
  EXPECT_NEAR(counts.at(1), 2000, 200);
  EXPECT_NEAR(counts.at(2), 5000, 250);
}

TEST(Sampler, TemperatureFlattens) {
  const std::vector<float> logits = {0, std::log(4.0F)};
  // At temperature 2 the odds of 4 become 2.
  EXPECT_NEAR(histogram({.temperature = 2}, logits, 6000).at(0), 2000, 200);
}

TEST(Sampler, TopKKeepsTheBest) {
  const auto counts = histogram({.top_k = 2}, {4, 1, 3.5F, 3.4F}, 500);
  EXPECT_EQ(counts.size(), 2U);
  EXPECT_TRUE(counts.contains(0) && counts.contains(2));
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  // Probabilities 0.5, 0.3, 0.2.
  const std::vector<float> logits = {std::log(0.2F), std::log(0.5F), std::log(0.3F)};
  EXPECT_EQ(histogram({.top_p = 0.4F}, logits, 300).size(), 1U);
  EXPECT_EQ(histogram({.top_p = 0.7F}, logits, 300).size(), 2U);
  EXPECT_EQ(histogram({.top_p = 0.9F}, logits, 300).size(), 3U);
  EXPECT_TRUE(histogram({.top_p = 0.0001F}, logits, 100).contains(1));
}

TEST(Sampler, TopPRanksWiderOnAFlatDistribution) {
  // 4,096 equal ids: half of the mass needs 2,048 of them, more than the first ranking holds.
  const auto counts = histogram({.top_p = 0.5F}, std::vector<float>(4096, 0.0F), 300);
  EXPECT_LT(counts.rbegin()->first, 2060);
  EXPECT_GT(counts.rbegin()->first, 1700);
}

TEST(Sampler, MinPIsRelativeToTheBest) {
  const std::vector<float> logits = {std::log(0.5F), std::log(0.3F), std::log(0.15F), std::log(0.05F)};
  EXPECT_EQ(histogram({.min_p = 0.5F}, logits, 300).size(), 2U);
  EXPECT_EQ(histogram({.min_p = 0.2F}, logits, 500).size(), 3U);
  EXPECT_EQ(histogram({.min_p = 1}, logits, 100).size(), 1U);
}

TEST(Sampler, TopPIsAShareOfWhatTopKLeft) {
  // Of 0.4, 0.3, 0.2, 0.1 top_k keeps 0.4 and 0.3: 0.57 and 0.43 of their sum.
  const std::vector<float> logits = {std::log(0.4F), std::log(0.3F), std::log(0.2F), std::log(0.1F)};
  EXPECT_EQ(histogram({.top_k = 2, .top_p = 0.5F}, logits, 300).size(), 1U);
  EXPECT_EQ(histogram({.top_k = 2, .top_p = 0.6F}, logits, 300).size(), 2U);
}

TEST(Sampler, RestrictedDrawsKeepTheOdds) {
  const std::vector<float> logits = {0, std::log(3.0F), -20, -20};
  const auto counts = histogram({.top_k = 2}, logits, 4000);
  EXPECT_NEAR(counts.at(1), 3000, 200);
}

TEST(Sampler, RepetitionPenaltyCountsPromptAndOutput) {
  EXPECT_EQ(draw({.temperature = 0, .repetition_penalty = 2}, {3, 2, 1}, {0}), 1);
  EXPECT_EQ(draw({.temperature = 0, .repetition_penalty = 2}, {3, 2, 1}, {}, {0}), 1);
  // Negative logits are multiplied: they move away, too.
  EXPECT_EQ(draw({.temperature = 0, .repetition_penalty = 2}, {-1, -1.5F}, {0}), 1);
}

TEST(Sampler, PresenceCountsOnceAndFrequencyEachTime) {
  const std::vector<float> logits = {5, 4.2F};
  EXPECT_EQ(draw({.temperature = 0, .presence_penalty = 0.5F}, logits, {}, {0, 0, 0}), 0);
  EXPECT_EQ(draw({.temperature = 0, .presence_penalty = 1}, logits, {}, {0}), 1);
  EXPECT_EQ(draw({.temperature = 0, .frequency_penalty = 0.5F}, logits, {}, {0}), 0);
  EXPECT_EQ(draw({.temperature = 0, .frequency_penalty = 0.5F}, logits, {}, {0, 0}), 1);
  // The prompt does not count for either.
  EXPECT_EQ(draw({.temperature = 0, .frequency_penalty = 2, .presence_penalty = 2}, logits, {0, 0}), 0);
}

TEST(Sampler, SampledTokensBecomeHistory) {
  Sampler sampler(Params{.temperature = 0, .presence_penalty = 2}, {}, {});
  std::vector<float> logits = {5, 4, 3.5F};
  EXPECT_EQ(sampler.sample(context(), logits).id, 0);
  EXPECT_EQ(sampler.sample(context(), logits).id, 1);
  EXPECT_EQ(sampler.sample(context(), logits).id, 2);
  EXPECT_EQ(logits, (std::vector<float>{5, 4, 3.5F})) << "logits are restored";
}

TEST(Sampler, LogitBiasForcesAndForbids) {
  EXPECT_EQ(draw({.temperature = 0, .logit_bias = {{2, 100.0F}}}, {5, 4, -3}), 2);
  EXPECT_EQ(draw({.temperature = 0, .logit_bias = {{0, -100.0F}}}, {5, 4, -3}), 1);
  const float never = -std::numeric_limits<float>::infinity();
  const auto counts = histogram({.logit_bias = {{0, never}}}, {9, 1, 1}, 300);
  EXPECT_FALSE(counts.contains(0));
}

TEST(Sampler, StopIdsCannotBeChosenUnderMinTokens) {
  Params params{.temperature = 0, .min_tokens = 2, .stop_ids = {0, 1}};
  Sampler sampler(params, {}, {});
  std::vector<float> logits = {9, 8, 1};
  EXPECT_EQ(sampler.sample(context(), logits).id, 2);
  EXPECT_EQ(sampler.sample(context(), logits).id, 2);
  EXPECT_EQ(sampler.sample(context(), logits).id, 0);
  // An answer that goes on counts what was out before.
  EXPECT_EQ(draw(params, {9, 8, 1}, {}, {2, 2}), 0);
}

TEST(Sampler, LogprobsAreTheModelsOwn) {
  Params params{.temperature = 0.3F, .frequency_penalty = 1, .logit_bias = {{1, 50.0F}}, .logprobs = 3};
  Sampler sampler(params, {}, {});
  std::vector<float> logits = {std::log(0.6F), std::log(0.1F), std::log(0.3F)};
  const SampledToken token = sampler.sample(context(), logits);
  EXPECT_EQ(token.id, 1);
  EXPECT_NEAR(token.logprob, std::log(0.1F), 1e-5);
  ASSERT_EQ(token.top.size(), 3U);
  EXPECT_EQ(token.top[0].id, 0);
  EXPECT_EQ(token.top[2].id, 1);
  float mass = 0;
  for (const TokenLogprob& each : token.top) mass += std::exp(each.logprob);
  EXPECT_NEAR(mass, 1, 1e-5);
}

TEST(Sampler, TheDrawDependsOnSeedChoiceAndIndexAlone) {
  const std::vector<float> logits = wavy_logits(1000);
  std::set<TokenId> by_seed, by_choice, by_index;
  for (std::uint32_t i = 0; i < 20; ++i) {
    by_seed.insert(draw({.seed = i}, logits));
    by_choice.insert(draw({.choice = i}, logits));
    by_index.insert(draw({}, logits, {}, std::vector<TokenId>(i, 1)));
  }
  EXPECT_GT(by_seed.size(), 5U);
  EXPECT_GT(by_choice.size(), 5U);
  EXPECT_GT(by_index.size(), 5U);
  EXPECT_EQ(draw({.seed = 5}, logits, {}, {1, 2, 3}), draw({.seed = 5}, logits, {9}, {3, 2, 1}));
}

// Whatever restrictions are combined, the token obeys all of them.
TEST(Sampler, ACombinationObeysEveryRestriction) {
  const std::vector<float> logits = wavy_logits(700);
  const auto best = kernels::top_candidates(logits, 700);
  for (const std::int32_t top_k : {0, 1, 5, 700, 9000}) {
    for (const float top_p : {0.1F, 0.9F, 1.0F}) {
      for (const float min_p : {0.0F, 0.05F, 0.9F}) {
        Params params{.temperature = 0.8F, .top_k = top_k, .top_p = top_p, .min_p = min_p};
        for (std::uint64_t seed = 0; seed < 30; ++seed) {
          params.seed = seed;
          const TokenId id = draw(params, logits);
          const float logit = logits[static_cast<std::size_t>(id)];
          if (top_k > 0 && top_k < 700) {
            ASSERT_GE(logit, best[static_cast<std::size_t>(top_k) - 1].logit);
          }
          if (min_p > 0) {
            ASSERT_GE(logit / 0.8F, best[0].logit / 0.8F + std::log(min_p) - 1e-4F);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace shoal::engine
