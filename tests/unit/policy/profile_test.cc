#include "policy/profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>
#include <sstream>
#include <vector>

#include "material.h"

namespace shoal::policy {
namespace {

RequestSize text_of(std::int64_t bytes) {
  RequestSize size;
  size.text = {bytes, static_cast<double>(bytes) / 5};
  return size;
}

RequestSize ids_of(std::int64_t ids) {
  RequestSize size;
  size.token_ids = ids;
  return size;
}

TEST(Profile, ClassesFollowTheTwoLimits) {
  EXPECT_EQ(classify(4095, 511), RequestClass::kChat);
  EXPECT_EQ(classify(4096, 511), RequestClass::kRetrieval);
  EXPECT_EQ(classify(4095, 512), RequestClass::kGeneration);
  EXPECT_EQ(classify(4096, 512), RequestClass::kAnalysis);
}

TEST(InputTokens, BeginsWithFourBytesAToken) { EXPECT_EQ(InputTokens().estimate({400, 80}), 100); }

TextSize evenly(std::int64_t bytes) { return {bytes, static_cast<double>(bytes) / 5}; }

TEST(TextSize, CountsWordsDigitsAndSigns) {
  EXPECT_EQ(TextSize::of("").pieces, 0);
  EXPECT_EQ(TextSize::of("Hello, world!").pieces, 4);
  EXPECT_EQ(TextSize::of("x == 1024\n\n").pieces, 8) << "a word, a run, four digits, two lines' ends";
  EXPECT_EQ(TextSize::of("\xe4\xbd\xa0\xe5\xa5\xbd").pieces, 1);
  const std::string text(100'000, 'a');
  EXPECT_EQ(TextSize::of(text).bytes, 100'000);
  std::string words;
  for (int i = 0; i < 20'000; ++i) words += "four ";
  EXPECT_NEAR(TextSize::of(words).pieces, 20'000, 10) << "beyond what is counted, more of the same";
}

TEST(InputTokens, LearnsATemplatesOverheadAndTheTextsOwnRate) {
  InputTokens input;
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    const auto bytes = static_cast<std::int64_t>(50 + random() % 4000);
    input.learn(evenly(bytes), 31 + std::lround(static_cast<double>(bytes) / 4.6));
  }
  for (const std::int64_t bytes : {100, 1000, 4000}) {
    const double truth = 31 + static_cast<double>(bytes) / 4.6;
    EXPECT_NEAR(input.estimate(evenly(bytes)), truth, 0.05 * truth) << bytes;
  }
}

TEST(InputTokens, TellsSumsFromEssays) {
  InputTokens input;
  std::mt19937 random(2);
  for (int i = 0; i < 200; ++i) {
    // Essays of five bytes a piece, and sums of two.
    const auto pieces = static_cast<double>(20 + random() % 500);
    const TextSize text{static_cast<std::int64_t>(pieces * (i % 2 == 0 ? 5 : 2)), pieces};
    input.learn(text, 20 + std::lround(pieces * 0.8 + 0.04 * static_cast<double>(text.bytes)));
  }
  EXPECT_NEAR(input.estimate({500, 100}), 20 + 80 + 20, 6);
  EXPECT_NEAR(input.estimate({200, 100}), 20 + 80 + 8, 6);
}

TEST(InputTokens, TextsOfOneLengthDoNotLeadItAstray) {
  InputTokens input;
  for (int i = 0; i < 100; ++i) input.learn(evenly(400), 130);
  EXPECT_NEAR(input.estimate(evenly(400)), 130, 4);
  EXPECT_GT(input.estimate(evenly(4000)), 500);
  input.learn(evenly(0), 5);
  input.learn(evenly(5), 0);
  EXPECT_NEAR(input.estimate(evenly(400)), 130, 4);
}

TEST(OutputTokens, GivesQuantilesOfTheLastOnes) {
  OutputTokens output;
  EXPECT_FALSE(output.quantile(0.5));
  for (int i = 0; i < 2000; ++i) output.learn(i < 1488 ? 7 : 100 + i % 101);
  EXPECT_NEAR(*output.quantile(0.5), 150, 3);
  EXPECT_NEAR(*output.quantile(0.9), 190, 3);
}

TEST(Profiler, AnswersFromTheGroupUntilTheMemberIsKnown) {
  Profiler profiler;
  const RequestSize size = text_of(400);
  EXPECT_EQ(profiler.profile("m", "a", size).output_p50, 256);
  for (int i = 0; i < 20; ++i) profiler.learn("m", "a", size, 130, 1000);
  EXPECT_EQ(profiler.profile("m", "a", size).request_class, RequestClass::kGeneration);
  EXPECT_EQ(profiler.profile("m", "new", size).output_p50, 1000);
  for (int i = 0; i < 20; ++i) profiler.learn("m", "new", size, 130, 10);
  EXPECT_EQ(profiler.profile("m", "new", size).output_p50, 10);
  RequestSize capped = size;
  capped.max_tokens = 32;
  EXPECT_EQ(profiler.profile("m", "a", capped).output_p90, 32) << "never more than the request allows";
}

TEST(Profiler, IdsAreCountedAsTheyAre) {
  Profiler profiler;
  EXPECT_EQ(profiler.profile("m", "", ids_of(123)).input_tokens, 123);
}

TEST(Profiler, KeepsABoundedNumberOfKeys) {
  Profiler profiler;
  for (int i = 0; i < 20; ++i) profiler.learn("first", "", text_of(4), 1, 5);
  for (std::size_t i = 0; i < Profiler::kMostKeys; ++i)
    profiler.learn("m" + std::to_string(i), "", text_of(4), 1, 5);
  EXPECT_EQ(profiler.profile("first", "", text_of(4)).output_p50, 256) << "forgotten";
}

// The first half teaches, the second half asks, and teaches on.
TEST(Profiler, QuantilesOfARealTraceCoverWhatTheySay) {
  const auto file = testing_material::shared() / "traces/azure_conv_2023/AzureLLMInferenceTrace_conv.csv";
  std::ifstream in(file);
  if (!in) GTEST_SKIP() << "no trace azure_conv_2023";
  std::vector<std::pair<std::int64_t, std::int64_t>> rows;
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    std::string time, context, generated;
    if (!std::getline(fields, time, ',') || !std::getline(fields, context, ',') ||
        !std::getline(fields, generated))
      continue;
    if (context.find_first_not_of("0123456789") != std::string::npos) continue;
    rows.emplace_back(std::stoll(context), std::stoll(generated));
  }
  ASSERT_GT(rows.size(), 10'000U);
  Profiler profiler;
  int asked = 0, within_p50 = 0, within_p90 = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto [input, output] = rows[i];
    if (i >= rows.size() / 2) {
      const Profile profile = profiler.profile("m", "", ids_of(input));
      ++asked;
      within_p50 += static_cast<double>(output) <= profile.output_p50 ? 1 : 0;
      within_p90 += static_cast<double>(output) <= profile.output_p90 ? 1 : 0;
    }
    profiler.learn("m", "", ids_of(input), input, output);
  }
  const double p50 = 100.0 * within_p50 / asked, p90 = 100.0 * within_p90 / asked;
  std::printf("second half of azure_conv_2023: P50 covers %.1f %%, P90 %.1f %%\n", p50, p90);
  EXPECT_GE(p50, 45);
  EXPECT_LE(p50, 55);
  EXPECT_GE(p90, 85);
  EXPECT_LE(p90, 95);
}

}  // namespace
}  // namespace shoal::policy
