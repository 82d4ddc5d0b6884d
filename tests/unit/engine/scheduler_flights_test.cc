// Plans of coordinates that exchange nothing do not wait for each other (P16).

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/log.h"
#include "engine/scheduler.h"
#include "policy/context_degree.h"
#include "scheduler_rig.h"

namespace shoal::engine {
namespace {

GenerateRequest request_of(std::int64_t length, TokenId seed, std::int32_t max_tokens) {
  GenerateRequest request;
  for (std::int64_t i = 0; i < length; ++i)
    request.prompt.push_back(static_cast<TokenId>((i * 7 + i / 60 + seed) % 60 + 1));
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  return request;
}

class SchedulerFlights : public testing::Test {
 protected:
  void SetUp() override { set_log_level(LogLevel::kError); }

  std::uint64_t submit(SchedulerRig& rig, const GenerateRequest& request) {
    const std::uint64_t id = rig.submit(request);
    sent_[id] = request;
    return id;
  }
  static bool ended(SchedulerRig& rig, std::uint64_t id) { return rig.received.at(id).lasts == 1; }
  // To the end, each with its own answer.
  void finish(SchedulerRig& rig) {
    rig.run();
    for (const auto& [id, request] : sent_) {
      SamplingParams sampling = request.sampling;
      sampling.stop_ids = {0};
      EXPECT_EQ(rig.received.at(id).ids.at(0),
                rig.model.answer(request.prompt, sampling, request.max_tokens, true))
          << id;
    }
    rig.expect_all_free_after_flush();
  }

 private:
  std::map<std::uint64_t, GenerateRequest> sent_;
};

TEST_F(SchedulerFlights, ACoordinateGoesOnWhileAnotherIsBusy) {
  for (const std::int32_t stages : {1, 3}) {
    SchedulerRig rig({.stages = stages, .coordinates = 2});
    const auto first = submit(rig, request_of(100, 1, 40));
    const auto second = submit(rig, request_of(90, 2, 20));
    rig.stuck = CoordinateSet::of(1);
    for (int i = 0; i < 200 && !ended(rig, first); ++i) ASSERT_TRUE(rig.step());
    EXPECT_TRUE(ended(rig, first));
    EXPECT_FALSE(ended(rig, second));
    // Others take the free coordinate; what comes to the busy one waits for it alone.
    const auto third = submit(rig, request_of(20, 3, 10));
    for (int i = 0; i < 50 && !ended(rig, third); ++i) ASSERT_TRUE(rig.step());
    EXPECT_TRUE(ended(rig, third));
    EXPECT_FALSE(rig.step());
    EXPECT_EQ(rig.in_flight(0), 0);
    EXPECT_GE(rig.in_flight(1), 1);
    rig.stuck = {};
    finish(rig);
  }
}

TEST_F(SchedulerFlights, EachCoordinateHasItsOwnPlansInFlight) {
  SchedulerRig rig({.pages = 512, .context = 8192, .fixed_chunk = 32, .coordinates = 3});
  for (TokenId i = 0; i < 3; ++i) submit(rig, request_of(300, i, 4));
  rig.stuck = CoordinateSet::first(3);
  EXPECT_FALSE(rig.step());
  for (std::int32_t c = 0; c < 3; ++c) EXPECT_EQ(rig.in_flight(c), 2);
  rig.stuck = {};
  finish(rig);
}

TEST_F(SchedulerFlights, ASharedSequenceWaitsForAllThatHoldIt) {
  SchedulerRig rig({.coordinates = 2, .cp_force = 2});
  submit(rig, request_of(200, 1, 30));
  rig.stuck = CoordinateSet::of(1);
  EXPECT_FALSE(rig.step());
  ASSERT_FALSE(rig.plans.empty());
  for (const StepPlan& plan : rig.plans) EXPECT_EQ(plan.coordinates, CoordinateSet::first(2));
  rig.stuck = {};
  finish(rig);
}

// Plans of one coordinate alone would else fill its places for ever.
TEST_F(SchedulerFlights, OnceAPromptIsSharedItsCoordinatesGoTogether) {
  SchedulerRig rig({.pages = 512, .context = 8192, .fixed_chunk = 64, .coordinates = 2});
  for (TokenId i = 0; i < 4; ++i) submit(rig, request_of(200, i, 30));
  for (int i = 0; i < 6; ++i) rig.step();
  for (const StepPlan& plan : rig.plans) EXPECT_EQ(plan.coordinates.count(), 1);
  const PlanNumber before = rig.scheduler->last_plan();
  const auto shared = submit(rig, request_of(policy::kSharedPrompt, 9, 2));
  rig.on_plan = [&](const StepPlan& plan) {
    if (plan.number > before && rig.received.at(shared).ids.empty()) {
      EXPECT_EQ(plan.coordinates.count(), 2) << plan.number.value;
    }
  };
  for (int i = 0; i < 300 && !ended(rig, shared); ++i) rig.step();
  EXPECT_TRUE(ended(rig, shared));
  finish(rig);
}

// Of four coordinates two share a prompt; the others do not wait for them.
TEST_F(SchedulerFlights, OnlyThoseThatShareWait) {
  SchedulerRig rig({.pages = 256, .context = 8192, .coordinates = 4});
  const auto shared = submit(rig, request_of(policy::kSharedPrompt, 9, 2));
  const auto third = submit(rig, request_of(50, 1, 20));
  const auto fourth = submit(rig, request_of(60, 2, 20));
  rig.stuck = CoordinateSet::of(1);
  for (int i = 0; i < 200 && rig.step(); ++i) {
  }
  EXPECT_FALSE(ended(rig, shared));
  EXPECT_TRUE(ended(rig, third));
  EXPECT_TRUE(ended(rig, fourth));
  rig.stuck = {};
  finish(rig);
}

// The plans that a busy coordinate has still to apply are bounded.
TEST_F(SchedulerFlights, NobodyRunsAheadForEver) {
  SchedulerRig rig({.pages = 64, .context = 1024, .coordinates = 2});
  const auto quick = submit(rig, request_of(20, 1, 600));
  submit(rig, request_of(30, 2, 5));
  rig.stuck = CoordinateSet::of(1);
  int steps = 0;
  while (steps < 1000 && rig.step()) ++steps;
  EXPECT_GT(steps, 200);
  EXPECT_LT(steps, 300);
  EXPECT_FALSE(ended(rig, quick));
  rig.stuck = {};
  finish(rig);
}

// A flush waits for the plans in flight when it was asked for, on whichever coordinate.
TEST_F(SchedulerFlights, APlanThatIsOutHoldsBackLastAnswered) {
  SchedulerRig rig({.coordinates = 2});
  submit(rig, request_of(20, 1, 30));
  submit(rig, request_of(30, 2, 5));
  rig.stuck = CoordinateSet::of(1);
  rig.step();
  PlanNumber oldest = rig.plans.front().number;
  for (const StepPlan& plan : rig.plans) {
    if (plan.is_for(1)) oldest = std::max(oldest, plan.number);
  }
  for (int i = 0; i < 10; ++i) rig.step();
  EXPECT_LT(rig.scheduler->last_answered(), oldest);
  // It stands still, whatever the other does.
  const auto since = rig.scheduler->waiting_since();
  ASSERT_TRUE(since.has_value());
  EXPECT_LT(*since, rig.time);
  rig.stuck = {};
  finish(rig);
  EXPECT_EQ(rig.scheduler->last_answered(), rig.scheduler->last_plan());
}

TEST_F(SchedulerFlights, ACancelOnABusyCoordinateEndsWithItsPlans) {
  SchedulerRig rig({.coordinates = 2});
  submit(rig, request_of(20, 1, 30));
  const auto cancelled = rig.submit(request_of(30, 2, 50));
  for (int i = 0; i < 8; ++i) rig.step();
  rig.stuck = CoordinateSet::of(1);
  for (int i = 0; i < 8; ++i) rig.step();
  EXPECT_TRUE(rig.scheduler->cancel(RequestId(cancelled), rig.time));
  const std::int32_t out = rig.in_flight(1);
  for (int i = 0; i < 8; ++i) rig.step();
  EXPECT_EQ(rig.in_flight(1), out);
  EXPECT_TRUE(ended(rig, cancelled));
  rig.stuck = {};
  finish(rig);
}

TEST_F(SchedulerFlights, LostRanksAreBegunAnewWhereverEachWas) {
  for (int steps = 0; steps < 40; ++steps) {
    SCOPED_TRACE(steps);
    SchedulerRig rig({.windows = {0, 40},
                      .pages = 24,
                      .max_sequences = 4,
                      .fixed_chunk = 20,
                      .coordinates = 3,
                      .cp_force = steps % 3});
    rig.random.emplace(steps);
    for (TokenId i = 0; i < 6; ++i) submit(rig, request_of(30 + 10 * i, i, 8 + 4 * i));
    for (int i = 0; i < steps; ++i) rig.step();
    rig.lose_ranks("rank 1: gone");
    finish(rig);
  }
}

}  // namespace
}  // namespace shoal::engine
