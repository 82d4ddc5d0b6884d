#include "policy/retraction.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace shoal::policy {
namespace {

RetractionCandidate candidate(std::uint64_t arrival, std::int64_t pages, double steps, double seconds) {
  return {arrival, pages, pages, steps, seconds, false};
}

TEST(Retraction, TakesTheOneWhosePagesAreWonForLongest) {
  const RetractionCandidate some[] = {candidate(1, 9, 900, 0.1), candidate(2, 4, 10, 0.1),
                                      candidate(3, 4, 100, 0.1), candidate(4, 4, 50, 0.1)};
  EXPECT_EQ(choose_retracted(some), 2U);
  EXPECT_EQ(choose_retracted({}), std::nullopt);
}

TEST(Retraction, ADearReturnCountsAgainstOne) {
  const RetractionCandidate some[] = {candidate(1, 1, 1, 0.1), candidate(2, 10, 100, 4.1),
                                      candidate(3, 5, 100, 2)};
  EXPECT_EQ(choose_retracted(some), 2U);
  // Below a millisecond it does not.
  const RetractionCandidate cheap[] = {candidate(1, 1, 1, 0.1), candidate(2, 5, 100, 1e-3),
                                       candidate(3, 5, 99, 1e-9)};
  EXPECT_EQ(choose_retracted(cheap), 1U);
}

TEST(Retraction, PagesThatOthersHoldTooWinNothing) {
  RetractionCandidate sharing = candidate(2, 50, 1000, 0.1);
  sharing.pages_won = 0;
  const RetractionCandidate some[] = {candidate(1, 5, 10, 0.1), sharing, candidate(3, 1, 1, 0.1)};
  EXPECT_EQ(choose_retracted(some), 2U);
  // But where nobody else has any, going lets others be the only ones.
  EXPECT_EQ(choose_retracted(std::span(some).first(2)), 1U);
}

TEST(Retraction, TheOldestGetsThrough) {
  const RetractionCandidate some[] = {candidate(7, 2, 5, 0.1), candidate(4, 100, 1000, 0.001)};
  EXPECT_EQ(choose_retracted(some), 0U);
  // Unless nobody else has pages to give.
  const RetractionCandidate alone[] = {candidate(4, 100, 1000, 0.001), candidate(2, 0, 5, 0.1)};
  EXPECT_EQ(choose_retracted(alone), 0U);
}

TEST(Retraction, OfEqualsTheYoungestGivesWay) {
  const RetractionCandidate some[] = {candidate(1, 4, 10, 0.1), candidate(5, 4, 10, 0.1),
                                      candidate(9, 4, 10, 0.1), candidate(7, 4, 10, 0.1)};
  EXPECT_EQ(choose_retracted(some), 2U);
}

TEST(Retraction, WaitsForPagesThatAreAlreadyComingBack) {
  RetractionCandidate some[] = {candidate(1, 4, 10, 0.1), candidate(2, 4, 10, 0.1), candidate(3, 1, 0, 0)};
  some[2].leaving = true;
  EXPECT_EQ(choose_retracted(some), std::nullopt);
  some[2].pages_held = 0;
  EXPECT_EQ(choose_retracted(some), 1U);
}

// Whoever is chosen ends last; with the oldest kept, everybody ends, whatever the scores say.
TEST(Retraction, NobodyGivesWayForEver) {
  struct One {
    std::uint64_t arrival;
    double left;
  };
  std::vector<One> running;
  for (std::uint64_t i = 0; i < 8; ++i) running.push_back({i, 1.0 + static_cast<double>(i * 7 % 5)});
  int rounds = 0;
  while (!running.empty()) {
    ASSERT_LT(++rounds, 100);
    std::vector<RetractionCandidate> candidates;
    for (const One& one : running) candidates.push_back(candidate(one.arrival, 3, one.left, 0.1));
    const auto waits = choose_retracted(candidates);
    ASSERT_TRUE(waits);
    for (std::size_t i = running.size(); i-- > 0;) {
      if (running.size() > 1 && i == *waits) continue;
      running[i].left -= 1;
      if (running[i].left <= 0) running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
      if (running.size() == 1) break;
    }
  }
}

TEST(ChooseReturn, TakesTheFastestThatIsOpen) {
  EXPECT_EQ(choose_return({.offload = 0.1, .recompute = 0.2}), Retraction::kOffload);
  EXPECT_EQ(choose_return({.offload = 0.2, .recompute = 0.1}), Retraction::kRecompute);
  EXPECT_EQ(choose_return({.offload = 0.1, .recompute = 0.1}), Retraction::kRecompute);
  EXPECT_EQ(choose_return({.offload = std::nullopt, .recompute = 1e9}), Retraction::kRecompute);
}

TEST(ChooseReturn, WhatIsAskedForHoldsWhereItIsOpen) {
  EXPECT_EQ(choose_return({.offload = 9, .recompute = 1}, Retraction::kOffload), Retraction::kOffload);
  EXPECT_EQ(choose_return({.offload = std::nullopt, .recompute = 1}, Retraction::kOffload),
            Retraction::kRecompute);
  EXPECT_EQ(choose_return({.offload = 1, .recompute = 9}, Retraction::kRecompute), Retraction::kRecompute);
}

TEST(RecomputeSeconds, AreThoseOfTheStepsThatItTakes) {
  const CostModel cost({0.01, 1, 0.001, 1, 1e-6});
  EXPECT_EQ(recompute_seconds(cost, 100, 100, 64), 0);
  EXPECT_NEAR(recompute_seconds(cost, 0, 64, 64), 0.01 + 0.064 + 64 * 65 / 2 * 1e-6, 1e-9);
  EXPECT_NEAR(recompute_seconds(cost, 0, 65, 64), recompute_seconds(cost, 0, 64, 64) + 0.01 + 0.001 + 65e-6,
              1e-9);
  EXPECT_LT(recompute_seconds(cost, 32, 96, 1024), recompute_seconds(cost, 0, 96, 1024));
}

TEST(CopyRate, FollowsWhatIsMeasured) {
  CopyRate rate;
  EXPECT_EQ(rate.round_trip_seconds(500'000'000), 1);
  rate.observe(4e9, 1);
  EXPECT_EQ(rate.bytes_per_second(), 4e9);
  for (int i = 0; i < 20; ++i) rate.observe(1e9, 0.5);
  EXPECT_NEAR(rate.bytes_per_second(), 2e9, 0.02e9);
  const double before = rate.bytes_per_second();
  rate.observe(0, 1);
  rate.observe(1, 0);
  rate.observe(1e9, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(rate.bytes_per_second(), before);
}

}  // namespace
}  // namespace shoal::policy
