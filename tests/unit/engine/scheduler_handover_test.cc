// Two schedulers, one that prefills and one that decodes, with the bytes of pages copied between their ranks
// by hand.

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "core/log.h"
#include "engine/scheduler.h"
#include "scheduler_rig.h"

namespace shoal::engine {
namespace {

struct FakeDeparture final : Departure {
  void attach(RequestId request, std::int32_t) override { id = request; }
  void close(const Status& reason) override { why = reason.message(); }
  void await_call() override { ++turns; }
  std::uint64_t room() const override { return number; }
  void commit(FirstToken token) override { first = std::move(token); }

  RequestId id;
  std::uint64_t number = 0;
  std::optional<FirstToken> first;
  int turns = 0;
  std::string why;
};

struct FakeArrival final : Arrival {
  void attach(RequestId request, std::int32_t) override { id = request; }
  void close(const Status& reason) override { why = reason.message(); }
  void open(std::span<const TokenId>, std::span<const kv::NewPage> pages) override {
    EXPECT_FALSE(lacking);
    lacking.emplace(pages.begin(), pages.end());
  }

  RequestId id;
  std::optional<std::vector<kv::NewPage>> lacking;
  std::string why;
};

std::vector<TokenId> prompt_of(std::size_t length, std::size_t seed) {
  std::vector<TokenId> prompt;
  for (std::size_t i = 0; i < length; ++i)
    prompt.push_back(static_cast<TokenId>((i * 7 + i * i * (seed % 5) + seed) % 60 + 1));
  return prompt;
}

class SchedulerHandover : public testing::Test {
 protected:
  struct Shared {
    GenerateRequest request;
    std::shared_ptr<FakeDeparture> departure = std::make_shared<FakeDeparture>();
    std::shared_ptr<FakeArrival> arrival = std::make_shared<FakeArrival>();
    std::uint64_t prefill_id = 0, decode_id = 0;
    bool called = false;
    bool moved = false;
  };

  void SetUp() override { set_log_level(LogLevel::kError); }

  void make(SchedulerRig::Options prefill_options, SchedulerRig::Options decode_options) {
    prefill.emplace(prefill_options);
    decode.emplace(decode_options);
  }
  Shared& ask(std::vector<TokenId> prompt, std::int32_t max_tokens) {
    Shared& shared = requests.emplace_back();
    shared.departure->number = ++rooms;
    shared.request.prompt = std::move(prompt);
    shared.request.max_tokens = max_tokens;
    shared.request.ignore_eos = true;
    GenerateRequest leg = shared.request;
    leg.departures = {shared.departure};
    shared.prefill_id = prefill->submit(leg);
    leg.departures.clear();
    leg.arrivals = {shared.arrival};
    shared.decode_id = decode->submit(leg);
    return shared;
  }
  // What a connection would do once decode has its pages.
  bool call(Shared& shared) {
    if (shared.called || !shared.arrival->lacking) return false;
    shared.called = true;
    prefill->scheduler->handover_called(shared.departure->id, 0, prefill->time);
    return true;
  }
  // And once both sides are so far.
  void move(Shared& shared) {
    if (shared.moved || !shared.departure->first || !shared.arrival->lacking) return;
    shared.moved = true;
    if (!shared.departure->first->finished) {
      for (const kv::NewPage& page : *shared.arrival->lacking) {
        // The rank knows it by the room, also when the sequence is closed.
        const auto& pages = prefill->rank->departed[shared.departure->number];
        const auto from = pages.find({page.group, page.logical});
        ASSERT_NE(from, pages.end()) << "page " << page.logical << " was never granted";
        std::ranges::copy(prefill->rank->page(from->second), decode->rank->page(page.page).begin());
        ++pages_moved;
      }
    }
    decode->scheduler->arrived(shared.arrival->id, 0, *shared.departure->first, decode->time);
    prefill->scheduler->handover_ended(shared.departure->id, 0, {}, prefill->time);
  }
  void run() {
    for (int i = 0; i < 20000; ++i) {
      const bool one = prefill->step();
      const bool other = decode->step();
      bool any = one || other;
      for (Shared& shared : requests) {
        const bool before = shared.moved;
        any = call(shared) || any;
        move(shared);
        any = any || shared.moved != before;
      }
      if (!any) break;
    }
    EXPECT_TRUE(prefill->scheduler->idle());
    EXPECT_TRUE(decode->scheduler->idle());
  }
  void expect_answers() {
    for (const Shared& shared : requests) {
      const auto expected = decode->model.answer(shared.request.prompt, shared.request.sampling,
                                                 shared.request.max_tokens, true);
      const Received& answer = decode->received[shared.decode_id];
      EXPECT_EQ(answer.ids.at(0), expected);
      EXPECT_EQ(answer.lasts, 1);
      EXPECT_EQ(prefill->received[shared.prefill_id].ids.at(0), std::vector<TokenId>{expected.front()});
      EXPECT_EQ(prefill->received[shared.prefill_id].lasts, 1);
    }
    prefill->expect_all_free_after_flush();
    decode->expect_all_free_after_flush();
  }

  std::optional<SchedulerRig> prefill, decode;
  std::deque<Shared> requests;
  std::size_t pages_moved = 0;
  std::uint64_t rooms = 0;
};

TEST_F(SchedulerHandover, ThePageTablesOfAllGroupsMeet) {
  // A window of 40 sees two pages at most.
  SchedulerRig::Options options;
  options.windows = {0, 40};
  options.fixed_chunk = 24;
  make(options, options);
  for (const std::size_t length : {1, 31, 32, 33, 64, 65, 100, 300}) {
    SCOPED_TRACE(length);
    const std::size_t before = pages_moved;
    ask(prompt_of(length, length), 50);
    run();
    const std::size_t pages = (length + 31) / 32;
    const auto hidden = static_cast<std::size_t>(first_visible_page(static_cast<std::int64_t>(length), 40));
    EXPECT_LE(pages_moved - before, pages + pages - hidden);
  }
  expect_answers();
}

TEST_F(SchedulerHandover, WhatDecodeKnowsIsNotSent) {
  make({}, {});
  ask(prompt_of(100, 3), 4);
  run();
  EXPECT_EQ(pages_moved, 4U);
  ask(prompt_of(100, 3), 4);
  run();
  EXPECT_EQ(pages_moved, 5U);
  ask(prompt_of(96, 3), 4);
  run();
  EXPECT_EQ(pages_moved, 5U);
  expect_answers();
}

TEST_F(SchedulerHandover, ManyShareFewPagesOnBothSides) {
  SchedulerRig::Options few;
  few.pages = 14;
  few.windows = {0, 40};
  few.fixed_chunk = 48;
  few.max_sequences = 6;
  few.offload_places = 10;
  few.retract = policy::Retraction::kOffload;
  make(few, few);
  std::mt19937 random(7);
  for (std::size_t i = 0; i < 60; ++i) {
    const auto tokens = static_cast<std::int32_t>(1 + random() % 100);
    ask(prompt_of(1 + random() % 300, i % 9), tokens);
  }
  run();
  expect_answers();
  const EngineStats stats = decode->scheduler->stats(decode->time);
  EXPECT_GT(stats.retractions[retraction_index(policy::Retraction::kOffload)], 0U);
  EXPECT_EQ(prefill->scheduler->stats(prefill->time).preemptions, 0U);
}

// Coordinates on both sides, and results in any order.
TEST_F(SchedulerHandover, CoordinatesOfBothSidesMeet) {
  SchedulerRig::Options few;
  few.pages = 14;
  few.windows = {0, 40};
  few.fixed_chunk = 48;
  few.max_sequences = 6;
  few.coordinates = 2;
  SchedulerRig::Options three = few;
  three.coordinates = 3;
  few.cp_force = 2;
  make(few, three);
  prefill->random.emplace(1);
  decode->random.emplace(2);
  std::mt19937 random(7);
  for (std::size_t i = 0; i < 60; ++i) {
    const auto tokens = static_cast<std::int32_t>(1 + random() % 100);
    ask(prompt_of(1 + random() % 300, i % 9), tokens);
  }
  run();
  expect_answers();
}

// Whatever decodes on one coordinate does not keep others waiting.
TEST_F(SchedulerHandover, AShortPromptArrivesOnOneCoordinate) {
  SchedulerRig::Options two;
  two.coordinates = 2;
  make({}, two);
  for (std::size_t i = 0; i < 4; ++i) ask(prompt_of(300 + i, i), 20);
  decode->on_plan = [&](const StepPlan& plan) {
    const bool work =
        std::ranges::any_of(plan.sub_batches, [](const auto& batch) { return !batch.items.empty(); });
    if (work) {
      EXPECT_EQ(plan.coordinates.count(), 1);
    }
  };
  run();
  expect_answers();
}

TEST_F(SchedulerHandover, NothingIsComputedForAWorkerThatHasNotCalled) {
  SchedulerRig::Options one;
  one.max_sequences = 1;
  make(one, {});
  Shared& shared = ask(prompt_of(100, 4), 10);
  EXPECT_FALSE(prefill->step());
  EXPECT_EQ(shared.departure->turns, 1);
  EXPECT_EQ(prefill->scheduler->stats(prefill->time).waiting, 1);
  EXPECT_EQ(prefill->scheduler->stats(prefill->time).kv[0].held, 0);
  // The next step is another's to take.
  EXPECT_FALSE(prefill->scheduler->waiting_since());
  // It stands in nobody's way.
  GenerateRequest own;
  own.prompt = prompt_of(50, 1);
  own.max_tokens = 3;
  own.ignore_eos = true;
  const std::uint64_t id = prefill->submit(own);
  while (prefill->step()) {
  }
  EXPECT_EQ(prefill->received[id].lasts, 1);
  EXPECT_EQ(prefill->received[shared.prefill_id].lasts, 0);
  run();
  EXPECT_EQ(shared.departure->turns, 1);
  expect_answers();

  Shared& late = ask(prompt_of(100, 5), 10);
  const Status why(ErrorCode::kDeadline, "the other worker did not come");
  prefill->scheduler->handover_ended(late.departure->id, 0, why, prefill->time);
  EXPECT_EQ(prefill->received[late.prefill_id].error.message(), why.message());
  decode->scheduler->cancel(late.arrival->id, decode->time);
  prefill->scheduler->handover_called(late.departure->id, 0, prefill->time);
  requests.clear();
  run();
}

TEST_F(SchedulerHandover, AnEndWhileAwayGivesPagesBackAtOnce) {
  make({}, {});
  for (const bool failed : {false, true}) {
    Shared& shared = ask(prompt_of(100, 5 + failed), 10);
    while (decode->step()) {
    }
    ASSERT_TRUE(call(shared));
    while (prefill->step()) {
    }
    ASSERT_TRUE(shared.departure->first);
    ASSERT_TRUE(shared.arrival->lacking);
    EXPECT_GT(prefill->scheduler->stats(prefill->time).kv[0].held, 0);
    EXPECT_EQ(decode->scheduler->stats(decode->time).kv[0].held, 4);
    if (failed) {
      const Status why(ErrorCode::kUnavailable, "the cable was cut");
      prefill->scheduler->handover_ended(shared.departure->id, 0, why, prefill->time);
      decode->scheduler->handover_ended(shared.arrival->id, 0, why, decode->time);
      EXPECT_EQ(decode->received[shared.decode_id].error.message(), "the cable was cut");
    } else {
      prefill->scheduler->cancel(shared.departure->id, prefill->time);
      decode->scheduler->cancel(shared.arrival->id, decode->time);
      EXPECT_EQ(shared.departure->why, "the request was cancelled");
      EXPECT_EQ(shared.arrival->why, "the request was cancelled");
    }
    EXPECT_EQ(prefill->scheduler->stats(prefill->time).kv[0].held, 0);
    EXPECT_EQ(decode->scheduler->stats(decode->time).kv[0].held, 0);
    // Too late, and nobody minds.
    decode->scheduler->arrived(shared.arrival->id, 0, *shared.departure->first, decode->time);
    prefill->scheduler->handover_ended(shared.departure->id, 0, {}, prefill->time);
  }
  while (prefill->step()) {
  }
  requests.clear();
  expect_answers();
}

TEST_F(SchedulerHandover, OneTokenNeedsNoPagesAtAll) {
  make({}, {});
  Shared& shared = ask(prompt_of(100, 4), 1);
  run();
  EXPECT_TRUE(shared.departure->first->finished);
  EXPECT_TRUE(shared.arrival->lacking->empty());
  expect_answers();
}

}  // namespace
}  // namespace shoal::engine
