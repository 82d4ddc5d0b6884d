// What becomes of requests when the worker loses a rank: computed again, each token sent once.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/log.h"
#include "engine/scheduler.h"
#include "scheduler_rig.h"

namespace shoal::engine {
namespace {

class SchedulerLoss : public testing::Test {
 protected:
  void SetUp() override { set_log_level(LogLevel::kError); }
};

// At every step there is: queued, in a prompt, with tokens in flight, after some have ended.
TEST_F(SchedulerLoss, AnswersGoOnWhereTheyWereWhateverTheMoment) {
  for (const std::int32_t stages : {1, 3}) {
    for (int steps = 0; steps < 60; ++steps) {
      SCOPED_TRACE(testing::Message() << stages << " stages, lost after " << steps << " steps");
      SchedulerRig rig(
          {.windows = {0, 40}, .pages = 24, .max_sequences = 4, .fixed_chunk = 20, .stages = stages});
      std::vector<GenerateRequest> requests;
      std::vector<std::uint64_t> ids;
      for (TokenId i = 0; i < 6; ++i) {
        requests.push_back(request_of(30 + 10 * static_cast<std::size_t>(i), i, 8 + 4 * i));
        if (i == 2) requests.back().prompt_logprobs = 0;
        ids.push_back(rig.submit(requests.back()));
      }
      for (int i = 0; i < steps; ++i) rig.step();
      rig.lose_ranks("rank 1: gone");
      rig.run();
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const Received& r = rig.received[ids[i]];
        EXPECT_EQ(r.ids.at(0), expected(rig, requests[i])) << i;
        EXPECT_EQ(r.finish.at(0), FinishReason::kLength);
        EXPECT_EQ(r.usage.completion_tokens, requests[i].max_tokens);
        EXPECT_EQ(r.usage.prompt_tokens, std::ssize(requests[i].prompt));
        EXPECT_EQ(r.lasts, 1);
        EXPECT_EQ(r.events_after_last, 0);
      }
      EXPECT_EQ(rig.received[ids[2]].prompt_logprobs.size(), requests[2].prompt.size() - 1);
      rig.expect_all_free_after_flush();
    }
  }
}

TEST_F(SchedulerLoss, WhoHasSomewhereElseToGoEndsAtOnce) {
  SchedulerRig rig({});
  GenerateRequest goes = request_of(40, 1, 30), stays = request_of(40, 2, 30);
  goes.outlives_ranks = false;
  const auto gone = rig.submit(goes), stayed = rig.submit(stays);
  for (int i = 0; i < 10; ++i) rig.step();
  rig.lose_ranks("rank 1: gone");
  EXPECT_EQ(rig.received[gone].lasts, 1);
  EXPECT_EQ(rig.received[gone].finish.at(0), FinishReason::kError);
  EXPECT_EQ(rig.received[gone].error.code(), ErrorCode::kUnavailable);
  EXPECT_EQ(rig.received[gone].error.message(), "rank 1: gone");
  rig.run();
  EXPECT_EQ(rig.received[stayed].ids.at(0), expected(rig, stays));
  rig.expect_all_free_after_flush();
}

TEST_F(SchedulerLoss, TheThirdLossEndsWhatRanButNotWhatWaited) {
  SchedulerRig rig({.max_sequences = 1});
  const GenerateRequest first = request_of(40, 1, 30), second = request_of(40, 2, 30);
  const auto ran = rig.submit(first), waited = rig.submit(second);
  for (int loss = 0; loss < 3; ++loss) {
    for (int i = 0; i < 5; ++i) rig.step();
    rig.lose_ranks("rank 1: gone");
  }
  EXPECT_EQ(rig.received[ran].finish.at(0), FinishReason::kError);
  EXPECT_EQ(rig.received[ran].lasts, 1);
  rig.run();
  EXPECT_EQ(rig.received[waited].ids.at(0), expected(rig, second));
  rig.expect_all_free_after_flush();
}

// Between the loss and the next epoch, and while the last plans are still unanswered.
TEST_F(SchedulerLoss, WhoIsCancelledMeanwhileEndsAtOnce) {
  SchedulerRig rig({});
  const GenerateRequest request = request_of(40, 1, 30);
  const auto early = rig.submit(request), late = rig.submit(request_of(40, 2, 30)),
             stays = rig.submit(request);
  for (int i = 0; i < 8; ++i) rig.step();
  rig.scheduler->lose_ranks({ErrorCode::kUnavailable, "rank 1: gone"}, rig.time);
  EXPECT_TRUE(rig.scheduler->cancel(RequestId(early), rig.time));
  EXPECT_EQ(rig.received[early].finish.at(0), FinishReason::kCancelled);
  rig.lose_ranks("rank 1: gone");  // the plans in flight; a second word of the same loss
  EXPECT_TRUE(rig.scheduler->cancel(RequestId(late), rig.time));
  EXPECT_EQ(rig.received[late].finish.at(0), FinishReason::kCancelled);
  rig.run();
  EXPECT_EQ(rig.received[stays].ids.at(0), expected(rig, request));
  EXPECT_EQ(rig.received[early].lasts + rig.received[late].lasts, 2);
  rig.expect_all_free_after_flush();
}

TEST_F(SchedulerLoss, OldestFirstAfterwards) {
  SchedulerRig rig({.max_sequences = 3});
  std::vector<std::uint64_t> ids;
  for (TokenId i = 0; i < 5; ++i) ids.push_back(rig.submit(request_of(20, i, 12)));
  for (int i = 0; i < 4; ++i) rig.step();
  rig.lose_ranks("rank 1: gone");
  std::vector<std::uint64_t> ended;
  while (rig.step()) {
    for (const std::uint64_t id : ids) {
      if (rig.received[id].lasts > 0 && std::ranges::find(ended, id) == ended.end()) ended.push_back(id);
    }
  }
  EXPECT_EQ(ended, ids);
}

}  // namespace
}  // namespace shoal::engine
