#include "policy/resilience.h"

#include <gtest/gtest.h>

namespace shoal::policy {
namespace {

using namespace std::chrono_literals;
const TimePoint kBegin = TimePoint{} + 1000s;

TEST(Backoff, DoublesUpToItsBoundAndNeverLosesMoreThanHalf) {
  for (std::uint64_t chance = 0; chance < 5000; chance += 97) {
    for (const auto& [attempt, whole] :
         {std::pair{1, 50}, {2, 100}, {3, 200}, {6, 1600}, {7, 2000}, {60, 2000}}) {
      const auto pause = backoff(attempt, chance);
      EXPECT_LE(pause.count(), whole);
      EXPECT_GE(pause.count(), whole / 2);
    }
  }
  EXPECT_NE(backoff(5, 1).count(), backoff(5, 1000).count());
}

TEST(RetryBudget, IsAShareOfTheRequestsAndALittleATime) {
  RetryBudget budget(0.2, 1);
  int taken = 0;
  while (budget.take(kBegin)) ++taken;
  EXPECT_EQ(taken, 10) << "to begin with";
  for (int i = 0; i < 50; ++i) budget.request();
  for (taken = 0; budget.take(kBegin); ++taken) {
  }
  EXPECT_NEAR(taken, 10, 1) << "a fifth of 50";
  for (taken = 0; budget.take(kBegin + 4s); ++taken) {
  }
  EXPECT_EQ(taken, 4) << "one a second";
}

TEST(Breaker, OpensAfterFailuresInARowAndLetsOneTry) {
  Breaker breaker({.failures = 3, .open_seconds = 5});
  breaker.failed(kBegin);
  breaker.failed(kBegin);
  breaker.succeeded();
  breaker.failed(kBegin);
  breaker.failed(kBegin);
  EXPECT_TRUE(breaker.passes(kBegin)) << "not in a row";
  breaker.failed(kBegin);
  EXPECT_FALSE(breaker.passes(kBegin + 4s));
  EXPECT_EQ(breaker.state(kBegin + 5s), Breaker::State::kHalfOpen);
  EXPECT_TRUE(breaker.passes(kBegin + 5s));
  breaker.sent(kBegin + 5s);
  EXPECT_FALSE(breaker.passes(kBegin + 6s)) << "one at a time";
  breaker.failed(kBegin + 6s);
  EXPECT_FALSE(breaker.passes(kBegin + 10s)) << "open again";
  breaker.sent(kBegin + 11s);
  breaker.succeeded();
  EXPECT_TRUE(breaker.passes(kBegin + 11s));
}

TEST(Breaker, ATrialThatIsForgottenStandsInNobodysWay) {
  Breaker breaker({.failures = 1, .open_seconds = 1});
  breaker.failed(kBegin);
  breaker.sent(kBegin + 2s);
  breaker.forgotten();
  EXPECT_TRUE(breaker.passes(kBegin + 2s));
  breaker.sent(kBegin + 2s);
  EXPECT_TRUE(breaker.passes(kBegin + 40s)) << "nor one that is never heard of again";
}

}  // namespace
}  // namespace shoal::policy
