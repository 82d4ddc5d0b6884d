// What the scheduler does with sequences that give way: kept in host memory or computed again, their answers
// are those of sequences that never had to.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "core/log.h"
#include "engine/scheduler.h"
#include "scheduler_rig.h"

namespace shoal::engine {
namespace {

class SchedulerRetract : public testing::Test {
 protected:
  void SetUp() override { set_log_level(LogLevel::kError); }

  // Five answers that want 45 pages of 12.
  void ask(SchedulerRig& rig) {
    for (TokenId i = 0; i < 5; ++i) {
      requests.push_back(request_of(20, i, 250));
      requests.back().sampling.seed = static_cast<std::uint64_t>(i) + 1;
      ids.push_back(rig.submit(requests.back()));
    }
  }
  static std::uint64_t count(const SchedulerRig& rig, policy::Retraction way) {
    return rig.scheduler->stats(rig.time).retractions[policy::retraction_index(way)];
  }
  void expect_answers(SchedulerRig& rig) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const Received& r = rig.received[ids[i]];
      EXPECT_EQ(r.lasts, 1);
      if (r.finish.at(0) == FinishReason::kCancelled) continue;
      EXPECT_EQ(r.ids.at(0), expected(rig, requests[i])) << i;
    }
    rig.expect_all_free_after_flush();
  }
  // Rows that were computed until all is done.
  static std::int64_t work_of(SchedulerRig& rig) {
    std::int64_t rows = 0;
    while (rig.step()) rows += rig.rank->rows_computed();
    EXPECT_TRUE(rig.scheduler->idle());
    return rows;
  }
  static SchedulerRig::Options small() {
    SchedulerRig::Options options;
    options.pages = 12;
    options.context = 320;
    return options;
  }
  // Until something is kept.
  static void step_until_kept(SchedulerRig& rig) {
    for (int i = 0; i < 5000 && rig.scheduler->stats(rig.time).offloaded_bytes == 0; ++i) rig.step();
    ASSERT_GT(rig.scheduler->stats(rig.time).offloaded_bytes, 0);
  }

  std::vector<GenerateRequest> requests;
  std::vector<std::uint64_t> ids;
};

TEST_F(SchedulerRetract, WhatIsKeptIsNotComputedAgain) {
  SchedulerRig::Options options = small();
  SchedulerRig without(options);
  ask(without);
  const std::int64_t recomputed = work_of(without);
  EXPECT_GT(count(without, policy::Retraction::kRecompute), 0U);
  expect_answers(without);
  requests.clear();
  ids.clear();

  options.offload_places = 60;
  options.retract = policy::Retraction::kOffload;
  SchedulerRig with(options);
  ask(with);
  const std::int64_t rows = work_of(with);
  EXPECT_GT(count(with, policy::Retraction::kOffload), 0U);
  EXPECT_EQ(count(with, policy::Retraction::kRecompute), 0U);
  expect_answers(with);
  // Each position once; a row in flight when its answer ends is dropped.
  EXPECT_GE(rows, 5 * 269);
  EXPECT_LE(rows, 5 * 271);
  EXPECT_GT(recomputed, rows + 100);
}

TEST_F(SchedulerRetract, WindowsAndStagesKeepWhatTheyNeed) {
  for (const std::int32_t stages : {1, 2, 3}) {
    for (const std::vector<std::int32_t>& windows :
         {std::vector<std::int32_t>{0, 40}, {64, 0}, {33, 0, 70}}) {
      SCOPED_TRACE(testing::Message() << stages << " stages, windows from " << windows.front());
      SchedulerRig::Options options = small();
      options.windows = windows;
      options.stages = stages;
      options.offload_places = 60;
      options.retract = policy::Retraction::kOffload;
      options.fixed_chunk = 24;
      SchedulerRig rig(options);
      requests.clear();
      ids.clear();
      ask(rig);
      rig.run();
      EXPECT_GT(count(rig, policy::Retraction::kOffload), 0U);
      expect_answers(rig);
    }
  }
}

TEST_F(SchedulerRetract, TheFasterWayIsTaken) {
  SchedulerRig::Options options = small();
  options.offload_places = 60;
  SchedulerRig fast(options);
  ask(fast);
  fast.run();
  EXPECT_GT(count(fast, policy::Retraction::kOffload), 0U);
  EXPECT_EQ(count(fast, policy::Retraction::kRecompute), 0U);
  expect_answers(fast);

  // A page that takes a second each way is worse than a millisecond for each of its rows: that is known once
  // one has been copied.
  SchedulerRig slow(options);
  slow.rank->seconds_per_copy = 1;
  requests.clear();
  ids.clear();
  ask(slow);
  slow.run();
  EXPECT_GE(count(slow, policy::Retraction::kOffload), 1U);
  EXPECT_LE(count(slow, policy::Retraction::kOffload), 2U);
  EXPECT_GT(count(slow, policy::Retraction::kRecompute), 0U);
  expect_answers(slow);
}

TEST_F(SchedulerRetract, WhatDoesNotFitTheBufferIsComputedAgain) {
  SchedulerRig::Options options = small();
  options.offload_places = 3;
  options.retract = policy::Retraction::kOffload;
  SchedulerRig rig(options);
  ask(rig);
  while (rig.step()) ASSERT_LE(rig.scheduler->stats(rig.time).offloaded_bytes, 3000);
  EXPECT_GT(count(rig, policy::Retraction::kRecompute), 0U);
  expect_answers(rig);
}

TEST_F(SchedulerRetract, TheBufferIsFreeOnceARequestIsCancelled) {
  SchedulerRig::Options options = small();
  options.offload_places = 60;
  options.retract = policy::Retraction::kOffload;
  SchedulerRig rig(options);
  ask(rig);
  step_until_kept(rig);
  // Whoever is kept is among them.
  for (std::size_t i = 1; i < ids.size(); ++i) rig.scheduler->cancel(RequestId(ids[i]), rig.time);
  EXPECT_EQ(rig.scheduler->stats(rig.time).offloaded_bytes, 0);
  rig.run();
  expect_answers(rig);
}

// At whatever moment: chosen and in flight, kept, on its way back.
TEST_F(SchedulerRetract, NothingIsLeftOfWhatIsCancelledAtAnyMoment) {
  for (int steps = 40; steps < 260; steps += 7) {
    SchedulerRig::Options options = small();
    options.windows = {0, 40};
    options.offload_places = 60;
    options.retract = policy::Retraction::kOffload;
    SchedulerRig rig(options);
    requests.clear();
    ids.clear();
    ask(rig);
    for (int i = 0; i < steps; ++i) rig.step();
    rig.scheduler->cancel(RequestId(ids[static_cast<std::size_t>(steps) % 5]), rig.time);
    rig.step();
    rig.scheduler->cancel(RequestId(ids[static_cast<std::size_t>(steps / 7) % 5]), rig.time);
    rig.run();
    expect_answers(rig);
  }
}

TEST_F(SchedulerRetract, WhatALostEpochKeptIsComputedAgain) {
  for (int steps = 60; steps < 260; steps += 11) {
    SchedulerRig::Options options = small();
    options.offload_places = 60;
    options.retract = policy::Retraction::kOffload;
    SchedulerRig rig(options);
    requests.clear();
    ids.clear();
    ask(rig);
    for (int i = 0; i < steps; ++i) rig.step();
    if (steps == 60) step_until_kept(rig);
    rig.lose_ranks("rank 1: gone");
    EXPECT_EQ(rig.scheduler->stats(rig.time).offloaded_bytes, 0);
    rig.run();
    EXPECT_GT(count(rig, policy::Retraction::kOffload), 0U);
    expect_answers(rig);
  }
}

TEST_F(SchedulerRetract, ChoicesKeepOnlyWhatIsTheirOwn) {
  SchedulerRig::Options options = small();
  options.pages = 14;
  options.offload_places = 60;
  options.retract = policy::Retraction::kOffload;
  SchedulerRig rig(options);
  GenerateRequest request = request_of(130, 3, 120);
  request.n = 4;
  const auto id = rig.submit(request);
  std::size_t kept = 0;
  rig.on_plan = [&](const StepPlan& plan) {
    kept += static_cast<std::size_t>(std::ranges::count(plan.copies, true, &PageCopy::out));
  };
  rig.run();
  const std::uint64_t times = count(rig, policy::Retraction::kOffload);
  EXPECT_GT(times, 0U);
  EXPECT_GT(kept, 0U);
  // Of its eight pages four are the prompt's, which others hold, too.
  EXPECT_LE(kept, 4 * times);
  for (std::uint32_t choice = 0; choice < 4; ++choice)
    EXPECT_EQ(rig.received[id].ids.at(static_cast<std::int32_t>(choice)), expected(rig, request, choice));
  rig.expect_all_free_after_flush();
}

TEST_F(SchedulerRetract, TheOldestIsNeverInterrupted) {
  SchedulerRig::Options options = small();
  options.offload_places = 60;
  SchedulerRig rig(options);
  ask(rig);
  int opened = 0;
  rig.on_plan = [&](const StepPlan& plan) {
    for (const SequenceOpen& open : plan.opens) opened += open.sampling.seed == 1 ? 1 : 0;
  };
  rig.run();
  EXPECT_EQ(opened, 1);
  EXPECT_GT(rig.scheduler->stats(rig.time).preemptions, 0U);
  expect_answers(rig);
}

// Log-probabilities of a prompt's tokens come once, and none is missing, whoever gives way in its middle.
TEST_F(SchedulerRetract, PromptsThatAreScoredStartOver) {
  SchedulerRig::Options options = small();
  options.pages = 10;
  options.fixed_chunk = 8;
  options.offload_places = 60;
  options.retract = policy::Retraction::kOffload;
  SchedulerRig rig(options);
  ask(rig);
  GenerateRequest scored = request_of(200, 9, 40);
  scored.prompt_logprobs = 0;
  const auto id = rig.submit(scored);
  rig.run();
  EXPECT_EQ(rig.received[id].prompt_logprobs.size(), scored.prompt.size() - 1);
  EXPECT_EQ(rig.received[id].ids.at(0), expected(rig, scored));
  expect_answers(rig);
}

// Long answers with shared prompts and choices on few pages, by every way, with cancels, failed passes, lost
// ranks and flushes: every answer that came to its end is what the model says without any pages.
TEST_F(SchedulerRetract, EveryAnswerIsItsSerialOneWhateverHappens) {
  const std::optional<policy::Retraction> ways[] = {std::nullopt, policy::Retraction::kOffload,
                                                    policy::Retraction::kRecompute};
  std::uint64_t kept = 0, complete = 0;
  for (unsigned seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    SchedulerRig::Options options;
    options.windows = seed % 2 == 0 ? std::vector<std::int32_t>{0} : std::vector<std::int32_t>{0, 50};
    options.pages = static_cast<std::int32_t>(11 + random() % 8);
    options.context = 320;
    options.stages = static_cast<std::int32_t>(1 + seed % 3);
    options.fixed_chunk = random() % 2 == 0 ? 0 : 24;
    options.offload_places = static_cast<std::int32_t>(random() % 40);
    options.retract = ways[seed / 3 % 3];
    SchedulerRig rig(options);
    std::map<std::uint64_t, GenerateRequest> sent;
    for (int step = 0; step < 900; ++step) {
      if (random() % 20 == 0 && sent.size() < 30) {
        GenerateRequest request = request_of(1 + random() % 110, static_cast<TokenId>(random() % 3),
                                             static_cast<std::int32_t>(1 + random() % 200));
        request.n = random() % 5 == 0 ? 2 : 1;
        request.sampling.seed = random();
        sent[rig.submit(request)] = request;
      }
      if (random() % 90 == 0 && !sent.empty())
        rig.scheduler->cancel(RequestId(1 + random() % sent.size()), rig.time);
      if (random() % 150 == 0) rig.scheduler->flush_cache();
      if (random() % 300 == 0) rig.fail_next = "the pass failed";
      if (random() % 400 == 0) rig.lose_ranks("rank 1: gone");
      rig.step();
      if (HasFatalFailure()) return;
    }
    rig.run();
    kept += count(rig, policy::Retraction::kOffload);
    for (const auto& [id, request] : sent) {
      const Received& r = rig.received.at(id);
      ASSERT_EQ(r.lasts, 1);
      if (!r.error.ok() || r.finish.at(0) == FinishReason::kCancelled) continue;
      for (std::int32_t choice = 0; choice < request.n; ++choice) {
        if (r.finish.at(choice) == FinishReason::kCancelled) continue;
        ++complete;
        ASSERT_EQ(r.ids.at(choice), expected(rig, request, static_cast<std::uint32_t>(choice))) << id;
      }
    }
    rig.expect_all_free_after_flush();
  }
  EXPECT_GT(kept, 20U);
  EXPECT_GT(complete, 200U);
}

}  // namespace
}  // namespace shoal::engine
