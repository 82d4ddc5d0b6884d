#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "core/log.h"
#include "scheduler_rig.h"

namespace shoal::engine {
namespace {

std::string text_of(const std::vector<TokenId>& ids) {
  const auto tokenizer = std::make_shared<FakeTokenizer>();
  tokenizer::Detokenizer detokenizer(tokenizer, true);
  std::string text;
  for (const TokenId id : ids) {
    if (id != 0) text += detokenizer.push(id);
  }
  return text + detokenizer.finish();
}

class SchedulerTest : public testing::Test {
 protected:
  void SetUp() override { set_log_level(LogLevel::kError); }
};

TEST_F(SchedulerTest, AnswersARequest) {
  SchedulerRig rig({});
  const GenerateRequest request = request_of(prompt_of(100), 40);
  const auto id = rig.submit(request);
  rig.run();
  const Received& r = rig.received[id];
  EXPECT_EQ(r.ids.at(0), expected(rig, request));
  EXPECT_EQ(r.finish.at(0), FinishReason::kLength);
  EXPECT_EQ(r.usage.prompt_tokens, 100);
  EXPECT_EQ(r.usage.completion_tokens, 40);
  EXPECT_EQ(r.lasts, 1);
  rig.expect_all_free_after_flush();
}

TEST_F(SchedulerTest, KeepsTwoPlansInFlight) {
  SchedulerRig rig({});
  rig.submit(request_of(prompt_of(40), 20));
  std::size_t most = 0;
  for (int i = 0; i < 10; ++i) {
    rig.step();
    most = std::max(most, rig.plans.size() + 1);
  }
  EXPECT_EQ(most, 2U);
  rig.run();
}

// Eight sequences on two stages are two plans of four that take turns: neither stage waits for an id.
TEST_F(SchedulerTest, StagesWorkOnPlansOfDifferentSequences) {
  SchedulerRig rig({.pages = 128, .stages = 2});
  std::vector<std::uint64_t> ids;
  for (TokenId seed = 1; seed <= 8; ++seed) ids.push_back(rig.submit(request_of(prompt_of(40, seed), 60)));
  std::vector<std::set<std::int32_t>> plans;
  rig.on_plan = [&](const StepPlan& plan) {
    std::set<std::int32_t> sequences;
    for (const WorkItem& item : plan.sub_batches.front().items) {
      if (item.tokens.empty()) sequences.insert(item.sequence.value);
    }
    plans.push_back(std::move(sequences));
  };
  for (int i = 0; i < 60; ++i) rig.step();
  for (std::size_t i = plans.size() - 20; i < plans.size(); ++i) {
    EXPECT_EQ(plans[i].size(), 4U) << "plan " << i;
    for (const std::int32_t sequence : plans[i]) EXPECT_FALSE(plans[i - 1].contains(sequence));
  }
  rig.run();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto request = request_of(prompt_of(40, static_cast<TokenId>(i + 1)), 60);
    EXPECT_EQ(rig.received[ids[i]].ids.at(0), expected(rig, request));
  }
}

// A stream beside a prompt leaves every second plan to the prompt's chunks; alone it is in each.
TEST_F(SchedulerTest, ChunksFillThePlansBetweenAStreamsTurns) {
  SchedulerRig rig({.pages = 128, .fixed_chunk = 16, .stages = 2});
  rig.submit(request_of(prompt_of(10), 100));
  for (int i = 0; i < 6; ++i) rig.step();
  rig.submit(request_of(prompt_of(400, 5), 1));
  for (int i = 0; i < 4; ++i) rig.step();
  std::vector<bool> streams, chunks;
  rig.on_plan = [&](const StepPlan& plan) {
    bool stream = false, chunk = false;
    for (const WorkItem& item : plan.sub_batches.front().items) (item.tokens.empty() ? stream : chunk) = true;
    streams.push_back(stream);
    chunks.push_back(chunk);
  };
  for (int i = 0; i < 10; ++i) rig.step();
  for (std::size_t i = 1; i < streams.size(); ++i) {
    EXPECT_TRUE(chunks[i]);
    EXPECT_NE(streams[i], streams[i - 1]);
  }
  rig.run();
}

TEST_F(SchedulerTest, TheAnswerDoesNotDependOnTheChunk) {
  for (const std::int32_t chunk : {1, 7, 64, 512}) {
    SchedulerRig rig({.fixed_chunk = chunk});
    const GenerateRequest request = request_of(prompt_of(150), 20);
    const auto id = rig.submit(request);
    rig.on_plan = [&](const StepPlan& plan) {
      std::int64_t prefill = 0;
      for (const WorkItem& item : plan.sub_batches[0].items) prefill += std::ssize(item.tokens);
      EXPECT_LE(prefill, chunk);
    };
    rig.run();
    EXPECT_EQ(rig.received[id].ids.at(0), expected(rig, request)) << chunk;
  }
}

TEST_F(SchedulerTest, AWarmPrefixIsNotComputedAgain) {
  SchedulerRig rig({});
  const GenerateRequest request = request_of(prompt_of(100), 10);
  rig.submit(request);
  rig.run();
  const auto id = rig.submit(request);
  std::int64_t prefill = 0;
  rig.on_plan = [&](const StepPlan& plan) {
    for (const WorkItem& item : plan.sub_batches[0].items) prefill += std::ssize(item.tokens);
  };
  rig.run();
  EXPECT_EQ(rig.received[id].usage.cached_tokens, 96);
  EXPECT_EQ(prefill, 4);
  EXPECT_EQ(rig.received[id].ids.at(0), expected(rig, request));
}

TEST_F(SchedulerTest, OneTokenIsAlwaysComputed) {
  SchedulerRig rig({});
  const GenerateRequest request = request_of(prompt_of(96), 4);
  rig.submit(request);
  rig.run();
  const auto id = rig.submit(request);
  rig.run();
  EXPECT_EQ(rig.received[id].usage.cached_tokens, 64);
  EXPECT_EQ(rig.received[id].ids.at(0), expected(rig, request));
}

TEST_F(SchedulerTest, AFollowUpFindsTheAnswerInTheCache) {
  SchedulerRig rig({});
  GenerateRequest request = request_of(prompt_of(50), 50);
  const auto first = rig.submit(request);
  rig.run();
  for (const TokenId id : rig.received[first].ids.at(0)) request.prompt.push_back(id);
  request.prompt.push_back(3);
  const auto second = rig.submit(request);
  rig.run();
  EXPECT_EQ(rig.received[second].usage.cached_tokens, 96);
}

TEST_F(SchedulerTest, SaltsShareNothing) {
  SchedulerRig rig({});
  GenerateRequest request = request_of(prompt_of(100), 4);
  request.cache_salt = "one";
  rig.submit(request);
  rig.run();
  request.cache_salt = "two";
  const auto id = rig.submit(request);
  rig.run();
  EXPECT_EQ(rig.received[id].usage.cached_tokens, 0);
}

TEST_F(SchedulerTest, EqualPromptsThatComeTogetherAreComputedOnce) {
  SchedulerRig rig({.fixed_chunk = 32});
  const GenerateRequest request = request_of(prompt_of(320), 4);
  std::vector<std::uint64_t> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(rig.submit(request));
  std::int64_t prefill = 0;
  rig.on_plan = [&](const StepPlan& plan) {
    for (const WorkItem& item : plan.sub_batches[0].items) prefill += std::ssize(item.tokens);
  };
  rig.run();
  for (const auto id : ids) EXPECT_EQ(rig.received[id].ids.at(0), expected(rig, request));
  EXPECT_LT(prefill, 2 * 320);
}

TEST_F(SchedulerTest, EosEndsAnAnswerAndLeavesNoText) {
  SchedulerRig rig({.vocabulary = 8});
  GenerateRequest request = request_of({1, 2, 3}, 200);
  request.ignore_eos = false;
  const auto id = rig.submit(request);
  rig.run();
  const Received& r = rig.received[id];
  EXPECT_EQ(r.ids.at(0), expected(rig, request));
  EXPECT_EQ(r.ids.at(0).back(), 0);
  EXPECT_EQ(r.finish.at(0), FinishReason::kStop);
  EXPECT_EQ(r.matched.at(0), "");
  EXPECT_EQ(r.text.at(0).find("<end>"), std::string::npos);
  rig.expect_all_free_after_flush();
}

TEST_F(SchedulerTest, MinTokensKeepsEosAway) {
  SchedulerRig rig({.vocabulary = 4});
  GenerateRequest request = request_of({1, 2, 3}, 100);
  request.ignore_eos = false;
  request.sampling.min_tokens = 60;
  const auto id = rig.submit(request);
  rig.run();
  EXPECT_GE(rig.received[id].ids.at(0).size(), 60U);
  EXPECT_EQ(rig.received[id].ids.at(0), expected(rig, request));
}

TEST_F(SchedulerTest, StopIdsEndAnAnswerAndAreNamed) {
  SchedulerRig rig({});
  GenerateRequest request = request_of(prompt_of(10), 400);
  request.stop_token_ids = {5};
  const auto id = rig.submit(request);
  rig.run();
  const Received& r = rig.received[id];
  ASSERT_EQ(r.finish.at(0), FinishReason::kStop);
  EXPECT_EQ(r.matched.at(0), "e");
  EXPECT_EQ(r.ids.at(0).back(), 5);
  EXPECT_EQ(r.text.at(0), text_of({r.ids.at(0).begin(), r.ids.at(0).end() - 1}));
}

TEST_F(SchedulerTest, StopStringsAcrossTokenBordersEndAnAnswer) {
  SchedulerRig rig({});
  GenerateRequest request = request_of(prompt_of(10), 60);
  const std::string whole = text_of(expected(rig, request));
  // The middle of the text, whatever tokens it falls into.
  const std::string stop = whole.substr(whole.size() / 2, 5);
  request.stop = {"never there", stop};
  const auto id = rig.submit(request);
  rig.run();
  const Received& r = rig.received[id];
  EXPECT_EQ(r.finish.at(0), FinishReason::kStop);
  EXPECT_EQ(r.matched.at(0), stop);
  EXPECT_EQ(r.text.at(0), whole.substr(0, whole.find(stop)));
  rig.expect_all_free_after_flush();
}

TEST_F(SchedulerTest, TextComesInWholeCharacters) {
  SchedulerRig rig({.vocabulary = 4});  // ids 2 and 3 are the halves of a character
  GenerateRequest request = request_of({1}, 80);
  std::string text;
  rig.scheduler->submit(
      RequestId(99), request,
      [&](OutputEvent&& event) {
        // No event begins inside a character.
        if (!event.text.empty()) {
          EXPECT_NE(event.text[0], '\xa9');
        }
        text += event.text;
      },
      rig.time);
  rig.run();
  EXPECT_NE(text.find("\xc3\xa9"), std::string::npos);
}

TEST_F(SchedulerTest, ChoicesShareThePromptAndDiffer) {
  SchedulerRig rig({});
  GenerateRequest request = request_of(prompt_of(100), 20);
  request.n = 3;
  const auto id = rig.submit(request);
  std::int64_t prefill = 0;
  rig.on_plan = [&](const StepPlan& plan) {
    for (const WorkItem& item : plan.sub_batches[0].items) prefill += std::ssize(item.tokens);
  };
  rig.run();
  const Received& r = rig.received[id];
  for (std::uint32_t choice = 0; choice < 3; ++choice) {
    EXPECT_EQ(r.ids.at(static_cast<std::int32_t>(choice)), expected(rig, request, choice));
    EXPECT_EQ(r.finish.at(static_cast<std::int32_t>(choice)), FinishReason::kLength);
  }
  EXPECT_EQ(prefill, 100 + 2 * 4);
  EXPECT_EQ(r.usage.completion_tokens, 60);
  EXPECT_EQ(r.lasts, 1);
  rig.expect_all_free_after_flush();
}

TEST_F(SchedulerTest, MoreChoicesThanPlacesAllComeThrough) {
  SchedulerRig rig({.max_sequences = 2});
  GenerateRequest request = request_of(prompt_of(40), 9);
  request.n = 7;
  const auto id = rig.submit(request);
  rig.run();
  EXPECT_EQ(rig.received[id].finish.size(), 7U);
}

TEST_F(SchedulerTest, PromptLogprobsCoverEveryTokenButTheFirst) {
  SchedulerRig rig({.fixed_chunk = 9});
  GenerateRequest request = request_of(prompt_of(70), 3);
  rig.submit(request);
  rig.run();  // a warm prefix, which must not be used
  request.prompt_logprobs = 0;
  const auto id = rig.submit(request);
  rig.run();
  const Received& r = rig.received[id];
  ASSERT_EQ(r.prompt_logprobs.size(), 69U);
  for (std::size_t i = 0; i < 69; ++i) {
    EXPECT_EQ(r.prompt_logprobs[i].position, static_cast<std::int32_t>(i + 1));
    EXPECT_EQ(r.prompt_logprobs[i].id, request.prompt[i + 1]);
  }
  EXPECT_EQ(r.usage.cached_tokens, 0);
  request.max_tokens = 0;
  const auto scored = rig.submit(request);
  rig.run();
  EXPECT_EQ(rig.received[scored].prompt_logprobs.size(), 69U);
  EXPECT_EQ(rig.received[scored].finish.at(0), FinishReason::kLength);
  EXPECT_EQ(rig.received[scored].usage.completion_tokens, 0);
}

TEST_F(SchedulerTest, PromptsThatAreScoredShareOnePlansLogits) {
  // 64 MiB of logits are four rows of this vocabulary.
  SchedulerRig rig({.vocabulary = 1 << 22});
  std::vector<std::uint64_t> ids;
  for (TokenId i = 0; i < 3; ++i) {
    GenerateRequest request = request_of(prompt_of(11, i), 2);
    request.prompt_logprobs = 0;
    ids.push_back(rig.submit(request));
  }
  std::int32_t most = 0;
  rig.on_plan = [&](const StepPlan& plan) {
    std::int32_t rows = 0;
    for (const WorkItem& item : plan.sub_batches[0].items) {
      if (item.prompt_logprobs >= 0) rows += item.count();
    }
    most = std::max(most, rows);
  };
  rig.run();
  EXPECT_EQ(most, 4);
  for (const auto id : ids) EXPECT_EQ(rig.received[id].prompt_logprobs.size(), 10U);
}

TEST_F(SchedulerTest, ACancelledRequestGetsNoWorkInLaterPlans) {
  SchedulerRig rig({});
  const auto other = rig.submit(request_of(prompt_of(20, 5), 30));
  const auto id = rig.submit(request_of(prompt_of(200), 100));
  for (int i = 0; i < 6; ++i) rig.step();
  ASSERT_TRUE(rig.scheduler->cancel(RequestId(id), rig.time));
  EXPECT_EQ(rig.received[id].lasts, 1);
  EXPECT_EQ(rig.received[id].finish.at(0), FinishReason::kCancelled);
  const auto later = rig.scheduler->last_plan();
  rig.on_plan = [&](const StepPlan& plan) {
    if (plan.number > later) {
      EXPECT_LE(plan.sub_batches[0].items.size(), 1U);
    }
  };
  rig.run();
  EXPECT_FALSE(rig.scheduler->cancel(RequestId(id), rig.time));
  EXPECT_EQ(rig.received[id].events_after_last, 0);
  EXPECT_EQ(rig.received[other].finish.at(0), FinishReason::kLength);
  rig.expect_all_free_after_flush();
}

TEST_F(SchedulerTest, AQueuedRequestCanBeCancelled) {
  SchedulerRig rig({.max_sequences = 1});
  const auto first = rig.submit(request_of(prompt_of(20), 10));
  const auto second = rig.submit(request_of(prompt_of(20), 10));
  rig.step();
  EXPECT_TRUE(rig.scheduler->cancel(RequestId(second), rig.time));
  rig.run();
  EXPECT_EQ(rig.received[second].usage.completion_tokens, 0);
  EXPECT_EQ(rig.received[first].ids.at(0).size(), 10U);
}

TEST_F(SchedulerTest, AFailedPassFailsItsRequestsAndNoOthers) {
  SchedulerRig rig({});
  const auto first = rig.submit(request_of(prompt_of(20), 50));
  for (int i = 0; i < 5; ++i) rig.step();
  rig.fail_next = "the forward pass failed: out of memory";
  rig.step();
  EXPECT_EQ(rig.received[first].finish.at(0), FinishReason::kError);
  EXPECT_EQ(rig.received[first].error.message(), "the forward pass failed: out of memory");
  EXPECT_EQ(rig.received[first].lasts, 1);
  const GenerateRequest request = request_of(prompt_of(30), 10);
  const auto second = rig.submit(request);
  rig.run();
  EXPECT_EQ(rig.received[second].ids.at(0), expected(rig, request));
  rig.expect_all_free_after_flush();
}

TEST_F(SchedulerTest, PreemptedAnswersGoOnAsIfNothingHadHappened) {
  SchedulerRig rig({.pages = 12, .context = 320});
  std::vector<GenerateRequest> requests;
  std::vector<std::uint64_t> ids;
  for (TokenId i = 0; i < 5; ++i) {
    requests.push_back(request_of(prompt_of(20, i), 250));
    ids.push_back(rig.submit(requests.back()));
  }
  rig.run();
  EXPECT_GT(rig.scheduler->stats(rig.time).preemptions, 0U);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(rig.received[ids[i]].ids.at(0), expected(rig, requests[i])) << i;
    EXPECT_EQ(rig.received[ids[i]].text.at(0), text_of(expected(rig, requests[i])));
  }
  rig.expect_all_free_after_flush();
}

TEST_F(SchedulerTest, AtMostOneSequenceIsPreemptedPerPlan) {
  SchedulerRig rig({.pages = 12, .context = 320});
  for (TokenId i = 0; i < 8; ++i) rig.submit(request_of(prompt_of(20, i), 250));
  std::uint64_t before = 0;
  while (rig.step()) {
    const std::uint64_t now = rig.scheduler->stats(rig.time).preemptions;
    // One answered step lets at most two plans be composed.
    ASSERT_LE(now - before, 2U);
    before = now;
  }
}

TEST_F(SchedulerTest, TheContextsLastPositionIsUsedAndNoneBeyond) {
  SchedulerRig rig({.context = 100});
  const auto id = rig.submit(request_of(prompt_of(90), 50));
  rig.on_plan = [](const StepPlan& plan) {
    for (const WorkItem& item : plan.sub_batches[0].items) EXPECT_LE(item.start + item.count(), 100);
  };
  rig.run();
  EXPECT_EQ(rig.received[id].ids.at(0).size(), 10U);
  EXPECT_EQ(rig.received[id].finish.at(0), FinishReason::kLength);
  EXPECT_TRUE(validate(request_of(prompt_of(99), 5), 64, 100).ok());
  EXPECT_EQ(validate(request_of(prompt_of(100), 5), 64, 100).code(), ErrorCode::kTooLong);
  EXPECT_TRUE(validate(request_of(prompt_of(100), 0), 64, 100).ok());
  EXPECT_EQ(validate(request_of(prompt_of(101), 0), 64, 100).code(), ErrorCode::kTooLong);
}

TEST_F(SchedulerTest, APoolOfExactlyOneContextServesOneAfterTheOther) {
  SchedulerRig rig({.pages = 4, .context = 128});
  std::vector<std::uint64_t> ids;
  for (TokenId i = 0; i < 4; ++i) ids.push_back(rig.submit(request_of(prompt_of(100, i), 28)));
  rig.run();
  for (const auto id : ids) EXPECT_EQ(rig.received[id].ids.at(0).size(), 28U);
}

TEST_F(SchedulerTest, ALargeRequestThatWaitsForPagesIsPassedOnlySoOften) {
  SchedulerRig rig({.pages = 20, .context = 600, .max_sequences = 4});
  // One runs for long on half of the pool; one needs nearly all of it.
  rig.submit(request_of(prompt_of(200, 1), 120));
  rig.step();
  const auto large = rig.submit(request_of(prompt_of(560, 2), 4));
  std::vector<std::uint64_t> small;
  for (TokenId i = 0; i < 40; ++i) small.push_back(rig.submit(request_of(prompt_of(20, i + 3), 4)));
  while (rig.received[large].lasts == 0) ASSERT_TRUE(rig.step());
  const auto before =
      std::ranges::count_if(small, [&](std::uint64_t id) { return rig.received[id].lasts > 0; });
  EXPECT_GT(before, 0);
  EXPECT_LE(before, 16 + 4);
  rig.run();
}

TEST_F(SchedulerTest, RefusesParametersOutOfRange) {
  const auto refused = [](auto&& change) {
    GenerateRequest request = request_of(prompt_of(4), 8);
    change(request);
    return validate(request, 64, 100).field();
  };
  EXPECT_EQ(refused([](auto&) {}), "");
  EXPECT_EQ(refused([](auto& r) { r.prompt.clear(); }), "prompt");
  EXPECT_EQ(refused([](auto& r) { r.prompt[1] = 64; }), "prompt");
  EXPECT_EQ(refused([](auto& r) { r.prompt[1] = -1; }), "prompt");
  EXPECT_EQ(refused([](auto& r) { r.n = 0; }), "n");
  EXPECT_EQ(refused([](auto& r) { r.n = 100000; }), "n");
  EXPECT_EQ(refused([](auto& r) { r.max_tokens = -1; }), "max_tokens");
  EXPECT_EQ(refused([](auto& r) { r.stop = {""}; }), "stop");
  EXPECT_EQ(refused([](auto& r) { r.stop_token_ids = {99}; }), "stop_token_ids");
  EXPECT_EQ(refused([](auto& r) { r.sampling.min_tokens = 9; }), "min_tokens");
  EXPECT_EQ(refused([](auto& r) { r.sampling.temperature = std::nanf(""); }), "temperature");
  EXPECT_EQ(refused([](auto& r) { r.sampling.temperature = -1; }), "temperature");
  EXPECT_EQ(refused([](auto& r) { r.sampling.top_p = 0; }), "top_p");
  EXPECT_EQ(refused([](auto& r) { r.sampling.top_p = std::nanf(""); }), "top_p");
  EXPECT_EQ(refused([](auto& r) { r.sampling.min_p = 2; }), "min_p");
  EXPECT_EQ(refused([](auto& r) { r.sampling.top_k = -5; }), "top_k");
  EXPECT_EQ(refused([](auto& r) { r.sampling.repetition_penalty = 0; }), "repetition_penalty");
  EXPECT_EQ(refused([](auto& r) { r.sampling.frequency_penalty = std::nanf(""); }), "frequency_penalty");
  EXPECT_EQ(refused([](auto& r) { r.sampling.logit_bias = {{64, 1.0F}}; }), "logit_bias");
  EXPECT_EQ(refused([](auto& r) { r.sampling.logprobs = 100000; }), "logprobs");
}

TEST_F(SchedulerTest, AShortPromptOvertakesALongOne) {
  SchedulerRig rig({.pages = 512, .context = 8192, .fixed_chunk = 64});
  const auto slow = rig.submit(request_of(prompt_of(8000), 2));
  for (int i = 0; i < 3; ++i) rig.step();
  const auto quick = rig.submit(request_of(prompt_of(60, 9), 2));
  for (int i = 0; i < 8; ++i) rig.step();
  EXPECT_EQ(rig.received[quick].lasts, 1);
  EXPECT_EQ(rig.received[slow].lasts, 0);
  rig.run();
}

// Many requests with shared prefixes, random lengths, cancels and failures on a pool far too small: every
// answer that came to its end is what the model says without any pages, and nothing is left.
class SchedulerSoak : public testing::TestWithParam<std::vector<std::int32_t>> {};

TEST_P(SchedulerSoak, EveryAnswerIsItsSerialOneAndNothingIsLeft) {
  set_log_level(LogLevel::kError);
  const std::optional<policy::Retraction> ways[] = {std::nullopt, policy::Retraction::kOffload,
                                                    policy::Retraction::kRecompute};
  for (unsigned seed = 1; seed <= 12; ++seed) {
    std::mt19937 random(seed);
    SchedulerRig rig({.windows = GetParam(),
                      .pages = static_cast<std::int32_t>(10 + random() % 30),
                      .context = 300,
                      .max_sequences = static_cast<std::int32_t>(1 + random() % 10),
                      .fixed_chunk = static_cast<std::int32_t>(random() % 3 == 0 ? 1 + random() % 50 : 0),
                      .stages = static_cast<std::int32_t>(1 + seed % 3),
                      .coordinates = static_cast<std::int32_t>(1 + seed / 3 % 3),
                      .cp_force = static_cast<std::int32_t>(seed % 2 == 0 ? 0 : 1 + random() % 3),
                      .offload_places = static_cast<std::int32_t>(seed % 4 == 0 ? 0 : random() % 30),
                      .retract = ways[seed % 3]});
    rig.random.emplace(seed);
    struct Sent {
      GenerateRequest request;
      bool disturbed = false;
    };
    std::map<std::uint64_t, Sent> sent;
    std::vector<TokenId> shared[3] = {prompt_of(97, 1), prompt_of(160, 2), prompt_of(40, 3)};
    for (int step = 0; step < 1500; ++step) {
      if (random() % 12 == 0 && sent.size() < 80) {
        GenerateRequest request;
        const auto& base = shared[random() % 3];
        request.prompt.assign(base.begin(),
                              base.begin() + static_cast<std::ptrdiff_t>(1 + random() % base.size()));
        for (unsigned i = random() % 40; i > 0; --i)
          request.prompt.push_back(static_cast<TokenId>(random() % 64));
        request.max_tokens = static_cast<std::int32_t>(random() % 90);
        request.n = random() % 6 == 0 ? 3 : 1;
        request.ignore_eos = random() % 2 == 0;
        request.sampling.seed = random();
        request.cache_salt = random() % 8 == 0 ? "salt" : "";
        if (random() % 10 == 0) request.prompt_logprobs = 0;
        if (static_cast<std::int32_t>(request.prompt.size()) >= rig.context()) continue;
        request.max_tokens =
            std::min(request.max_tokens, rig.context() - static_cast<std::int32_t>(request.prompt.size()));
        sent[rig.submit(request)].request = request;
      }
      if (random() % 60 == 0 && !sent.empty()) {
        auto it = sent.begin();
        std::advance(it, random() % sent.size());
        if (rig.scheduler->cancel(RequestId(it->first), rig.time)) it->second.disturbed = true;
      }
      if (random() % 200 == 0) rig.scheduler->flush_cache();
      if (random() % 300 == 0) rig.fail_next = "the pass failed";
      rig.step();
      if (HasFatalFailure()) return;
    }
    rig.run();
    int complete = 0;
    for (auto& [id, one] : sent) {
      const Received& r = rig.received.at(id);
      ASSERT_EQ(r.lasts, 1) << id;
      ASSERT_EQ(r.events_after_last, 0);
      // Of one that failed, the choices that had ended before have an end of their own, and the last event
      // tells of all others.
      const auto choices = static_cast<std::size_t>(one.request.n);
      ASSERT_TRUE(r.error.ok() ? r.finish.size() == choices : r.finish.size() <= choices) << r.finish.size();
      if (one.disturbed || !r.error.ok()) continue;
      ++complete;
      for (std::int32_t choice = 0; choice < one.request.n; ++choice) {
        const auto want = expected(rig, one.request, static_cast<std::uint32_t>(choice));
        const auto got = r.ids.find(choice);
        ASSERT_EQ(got == r.ids.end() ? std::vector<TokenId>{} : got->second, want)
            << "request " << id << " seed " << seed;
        ASSERT_EQ(r.text.at(choice), text_of(want));
      }
      if (one.request.prompt_logprobs >= 0) {
        ASSERT_EQ(r.prompt_logprobs.size(), one.request.prompt.size() - 1);
      }
    }
    EXPECT_GT(complete, 10);
    rig.expect_all_free_after_flush();
  }
}

INSTANTIATE_TEST_SUITE_P(Windows, SchedulerSoak,
                         testing::Values(std::vector<std::int32_t>{0}, std::vector<std::int32_t>{50},
                                         std::vector<std::int32_t>{0, 64}, std::vector<std::int32_t>{33, 0}));

}  // namespace
}  // namespace shoal::engine
