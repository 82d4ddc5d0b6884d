// Two engines on a tiny real model, one that prefills and one that decodes, over real connections.

#include <gtest/gtest.h>

#include <chrono>

#include "handover_rig.h"

namespace shoal::handover {
namespace {

TEST(Handover, AnswersAreOneEnginesBitForBit) {
  SHOAL_NEEDS_STORIES();
  EngineOptions chunked = strict_options();
  chunked.prefill_chunk = 40;
  Pair pair(chunked);
  auto alone = engine::start(strict_options());
  for (const std::size_t length : {1, 31, 32, 33, 64, 200, 450}) {
    for (const int warm : {0, 1, 2}) {  // cold; prefill knows half of it; decode does
      SCOPED_TRACE("prompt " + std::to_string(length) + " warm " + std::to_string(warm));
      GenerateRequest request =
          request_of(prompt_of(length, length + 10 * static_cast<std::size_t>(warm)), 24, length);
      request.sampling.logprobs = 3;
      // Nothing shared with the other cases.
      request.cache_salt = std::to_string(length) + "/" + std::to_string(warm);
      if (warm > 0) {
        GenerateRequest half = request;
        half.prompt.resize((length + 1) / 2);
        half.max_tokens = 1;
        Client warmed;
        ASSERT_TRUE((warm == 1 ? pair.prefill : pair.decode)->submit(half, warmed.sink()).ok());
        ASSERT_TRUE(warmed.wait());
      }
      Client expected, first, answer;
      ASSERT_TRUE(alone->submit(request, expected.sink()).ok());
      const std::uint64_t before = pair.kv_bytes();
      pair.ask(request, first, answer);
      ASSERT_TRUE(answer.wait());
      ASSERT_TRUE(first.wait());
      ASSERT_TRUE(expected.wait());
      ASSERT_TRUE(answer.error.ok()) << answer.error.message();
      ASSERT_TRUE(first.error.ok()) << first.error.message();
      expect_same(answer, expected, 1);
      EXPECT_EQ(first.ids(), (std::vector<TokenId>{expected.ids().front()}));
      // Only what decode lacks, whole pages.
      const std::size_t cached = warm == 2 ? (length + 1) / 2 / 32 : 0;
      EXPECT_EQ(pair.kv_bytes() - before, ((length + 31) / 32 - cached) * page_bytes(*pair.decode));
    }
  }
  pair.expect_nothing_held();
}

TEST(Handover, EveryChoiceHasItsRoom) {
  SHOAL_NEEDS_STORIES();
  Pair pair;
  auto alone = engine::start(strict_options());
  GenerateRequest request = request_of(prompt_of(100, 4), 20, 9);
  request.n = 3;
  request.sampling.logprobs = 2;
  Client expected, first, answer;
  ASSERT_TRUE(alone->submit(request, expected.sink()).ok());
  pair.ask(request, first, answer);
  ASSERT_TRUE(answer.wait());
  ASSERT_TRUE(first.wait());
  ASSERT_TRUE(expected.wait());
  expect_same(answer, expected, 3);
  // The first brings four pages; the others find three of them in the prefix tree.
  EXPECT_EQ(pair.kv_bytes(), (4 + 1 + 1) * page_bytes(*pair.decode));
  pair.expect_nothing_held();
}

TEST(Handover, OneTokenAloneMovesNothing) {
  SHOAL_NEEDS_STORIES();
  Pair pair;
  auto alone = engine::start(strict_options());
  const GenerateRequest request = request_of(prompt_of(80, 5), 1, 3);
  Client expected, first, answer;
  ASSERT_TRUE(alone->submit(request, expected.sink()).ok());
  pair.ask(request, first, answer);
  ASSERT_TRUE(answer.wait());
  ASSERT_TRUE(first.wait());
  ASSERT_TRUE(expected.wait());
  expect_same(answer, expected, 1);
  EXPECT_EQ(answer.finish.at(0), engine::FinishReason::kLength);
  EXPECT_EQ(pair.kv_bytes(), 0U);
  pair.expect_nothing_held();
}

TEST(Handover, AStopAtTheFirstTokenEndsBothLegs) {
  SHOAL_NEEDS_STORIES();
  Pair pair;
  GenerateRequest request = request_of(prompt_of(60, 6), 20, 3);
  Client probe;
  ASSERT_TRUE(pair.decode->submit(request, probe.sink()).ok());
  ASSERT_TRUE(probe.wait());
  for (const std::size_t at : {0, 5}) {
    SCOPED_TRACE(at);
    request.stop_token_ids = {probe.ids()[at]};
    Client first, answer;
    pair.ask(request, first, answer);
    ASSERT_TRUE(answer.wait());
    ASSERT_TRUE(first.wait());
    EXPECT_TRUE(answer.error.ok()) << answer.error.message();
    EXPECT_EQ(answer.finish.at(0), engine::FinishReason::kStop);
    EXPECT_EQ(answer.ids().back(), probe.ids()[at]);
    EXPECT_LE(answer.ids().size(), at + 1);
  }
  pair.expect_nothing_held();
}

TEST(Handover, ManyAtOnceThroughFewPages) {
  SHOAL_NEEDS_STORIES();
  EngineOptions small = strict_options();
  small.kv_pages = 24;
  small.context = 512;
  Pair pair(small, small);
  auto alone = engine::start(strict_options());
  constexpr std::size_t kRequests = 24;
  std::vector<std::unique_ptr<Client>> first, answer, expected;
  for (std::size_t i = 0; i < kRequests; ++i) {
    for (auto* clients : {&first, &answer, &expected}) clients->push_back(std::make_unique<Client>());
    const GenerateRequest request =
        request_of(prompt_of(20 + 37 * i % 300, i), 8 + static_cast<std::int32_t>(i % 40), i);
    ASSERT_TRUE(alone->submit(request, expected[i]->sink()).ok());
    pair.ask(request, *first[i], *answer[i]);
  }
  for (std::size_t i = 0; i < kRequests; ++i) {
    SCOPED_TRACE(i);
    ASSERT_TRUE(answer[i]->wait());
    ASSERT_TRUE(first[i]->wait());
    ASSERT_TRUE(expected[i]->wait());
    ASSERT_TRUE(answer[i]->error.ok()) << answer[i]->error.message();
    expect_same(*answer[i], *expected[i], 1);
  }
  pair.expect_nothing_held();
}

TEST(Handover, AnAbortOfEitherLegFreesBothSides) {
  SHOAL_NEEDS_STORIES();
  EngineOptions slow = strict_options();
  slow.prefill_chunk = 16;
  Pair pair(slow);
  for (const bool at_decode : {false, true}) {
    SCOPED_TRACE(at_decode);
    const GenerateRequest request = request_of(prompt_of(480, 7 + at_decode), 20, 3);
    const RoomId room = pair.next_room++;
    Client first, answer;
    auto sent = pair.prefill->submit(pair.departing(request, room), first.sink());
    auto asked = pair.decode->submit(pair.arriving(request, room), answer.sink());
    ASSERT_TRUE(sent.ok() && asked.ok());
    ASSERT_TRUE(eventually([&] { return pair.receiver->stats().open[2] == 1; }, std::chrono::seconds(10)));
    const TimePoint began = now();
    EXPECT_TRUE(at_decode ? pair.decode->cancel(*asked) : pair.prefill->cancel(*sent));
    EXPECT_TRUE(eventually([&] { return held(*pair.prefill) == 0 && held(*pair.decode) == 0; },
                           std::chrono::seconds(5)));
    EXPECT_LT(seconds_between(began, now()), 1.0);
    ASSERT_TRUE(first.wait());
    ASSERT_TRUE(answer.wait());
    EXPECT_FALSE((at_decode ? first : answer).error.ok());
    // The room is over on both sides.
    EXPECT_FALSE(pair.sender->depart(room, request.prompt).ok());
    EXPECT_FALSE(pair.receiver->arrive(room, {"127.0.0.1", pair.bootstrap->port()}).ok());
  }
  Client first, answer;
  pair.ask(request_of(prompt_of(50, 8), 5), first, answer);
  ASSERT_TRUE(answer.wait());
  EXPECT_TRUE(answer.error.ok());
  ASSERT_TRUE(first.wait());
  pair.expect_nothing_held();
}

TEST(Handover, WorkersThatDoNotFitSayWhy) {
  SHOAL_NEEDS_STORIES();
  EngineOptions f32 = strict_options();
  f32.kv_dtype = KvDType::kF32;
  EngineOptions quick = strict_options();
  quick.deterministic = false;
  const std::tuple<EngineOptions, std::string, std::string, std::string> cases[] = {
      {f32, "0123456789abcdef", "1", "KV layout"},
      {quick, "0123456789abcdef", "1", "--deterministic"},
      {strict_options(), "0123456789abcdef", "2", "build 1"},
      {strict_options(), "another token of the cluster", "1", "cluster token"},
  };
  for (const auto& [options, token, build, word] : cases) {
    SCOPED_TRACE(word);
    Pair pair(strict_options(), options, token, build);
    const GenerateRequest request = request_of(prompt_of(40, 1), 5);
    Client first, answer;
    const RoomId room = 5;
    auto sent = pair.prefill->submit(pair.departing(request, room), first.sink());
    ASSERT_TRUE(pair.decode->submit(pair.arriving(request, room), answer.sink()).ok());
    ASSERT_TRUE(answer.wait());
    EXPECT_NE(answer.error.message().find(word), std::string::npos) << answer.error.message();
    if (word == "cluster token") {
      pair.prefill->cancel(*sent);  // who holds another token is a stranger: the room still waits
      ASSERT_TRUE(first.wait());
    } else {
      ASSERT_TRUE(first.wait());
      EXPECT_EQ(first.error.message(), answer.error.message());
    }
    pair.expect_nothing_held();
  }
}

TEST(Handover, LegsOfDifferentRequestsDoNotMeet) {
  SHOAL_NEEDS_STORIES();
  Pair pair;
  Client first, answer;
  ASSERT_TRUE(pair.prefill->submit(pair.departing(request_of(prompt_of(40, 1), 5), 9), first.sink()).ok());
  ASSERT_TRUE(pair.decode->submit(pair.arriving(request_of(prompt_of(40, 2), 5), 9), answer.sink()).ok());
  ASSERT_TRUE(answer.wait());
  ASSERT_TRUE(first.wait());
  EXPECT_NE(answer.error.message().find("prompts of room 9 differ"), std::string::npos)
      << answer.error.message();
  EXPECT_EQ(first.error.message(), answer.error.message());
  pair.expect_nothing_held();
}

TEST(Handover, AnUnreachablePrefillWorkerIsNamed) {
  SHOAL_NEEDS_STORIES();
  Pair pair;
  pair.bootstrap.reset();
  GenerateRequest request = request_of(prompt_of(40, 1), 5);
  auto leg = pair.receiver->arrive(3, {"127.0.0.1", 1});
  ASSERT_TRUE(leg.ok());
  request.arrivals.push_back(*leg);
  Client answer;
  ASSERT_TRUE(pair.decode->submit(request, answer.sink()).ok());
  ASSERT_TRUE(answer.wait());
  EXPECT_NE(answer.error.message().find("127.0.0.1:1"), std::string::npos) << answer.error.message();
  pair.expect_nothing_held();
}

TEST(Handover, AnAbandonedRoomIsRefusedWhenItComesAndEndedWhereItIs) {
  SHOAL_NEEDS_STORIES();
  Pair pair;
  const GenerateRequest request = request_of(prompt_of(40, 1), 5);
  pair.sender->abandon(11);
  pair.receiver->abandon(11);
  const auto departure = pair.sender->depart(11, request.prompt);
  const auto arrival = pair.receiver->arrive(11, {"127.0.0.1", pair.bootstrap->port()});
  ASSERT_FALSE(departure.ok() || arrival.ok());
  EXPECT_NE(departure.error().message().find("room 11 is over"), std::string::npos);
  EXPECT_NE(arrival.error().message().find("room 11 is over"), std::string::npos);
  // Before and after the engine has it; nothing is held for it meanwhile.
  for (const bool early : {false, true}) {
    SCOPED_TRACE(early);
    const RoomId room = pair.next_room++;
    GenerateRequest leg = pair.departing(request, room);
    if (early) pair.sender->abandon(room);
    Client first;
    ASSERT_TRUE(pair.prefill->submit(std::move(leg), first.sink()).ok());
    if (!early) {
      ASSERT_TRUE(eventually([&] { return pair.prefill->stats().waiting == 1; }, std::chrono::seconds(10)));
      EXPECT_EQ(held(*pair.prefill), 0);
      pair.sender->abandon(room);
    }
    ASSERT_TRUE(first.wait());
    EXPECT_EQ(first.error.message(), "the request was cancelled");
  }
  pair.expect_nothing_held();
}

TEST(Handover, ASenderThatStopsEndsItsRooms) {
  SHOAL_NEEDS_STORIES();
  EngineOptions slow = strict_options();
  slow.prefill_chunk = 16;
  Pair pair(slow);
  const GenerateRequest request = request_of(prompt_of(480, 3), 20);
  Client first, answer;
  pair.ask(request, first, answer);
  ASSERT_TRUE(eventually([&] { return pair.receiver->stats().open[2] == 1; }, std::chrono::seconds(10)));
  pair.sender.reset();
  ASSERT_TRUE(answer.wait());
  ASSERT_TRUE(first.wait());
  EXPECT_FALSE(answer.error.ok());
  EXPECT_FALSE(first.error.ok());
  engine::expect_pages_back(*pair.prefill);
  engine::expect_pages_back(*pair.decode);
}

}  // namespace
}  // namespace shoal::handover
