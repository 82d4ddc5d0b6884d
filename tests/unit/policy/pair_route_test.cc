#include "policy/pair_route.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <vector>

namespace shoal::policy {
namespace {

using namespace std::chrono_literals;

const TimePoint kNow = TimePoint{} + 1000s;

// Prefill workers first; ids are the places in the fleet, from 1.
struct Fleet {
  std::vector<WorkerView> views;
  std::vector<std::uint32_t> prefills, decodes;
  PairTable links{{.failures = 1, .open_seconds = 5}};

  Fleet(std::size_t prefill, std::size_t decode) : views(prefill + decode) {
    for (std::uint32_t i = 0; i < views.size(); ++i) {
      WorkerView& view = views[i];
      view.id = i + 1;
      view.available = true;
      view.role = i < prefill ? WorkerRole::kPrefill : WorkerRole::kDecode;
      view.load = WorkerLoad{kNow, 0, 0, 0, 1000};
      view.pages = 1000;
      (i < prefill ? prefills : decodes).push_back(i);
    }
  }
  std::optional<PairChoice> choose(
      RoutePolicy policy = RoutePolicy::kShortestQueue, std::uint64_t turn = 0,
      std::vector<std::uint32_t> avoid = {},
      std::vector<std::pair<std::uint32_t, std::uint32_t>> avoid_pairs = {}) const {
    static const Profile profile{.input_tokens = 320, .output_p50 = 320};
    return choose_pair({.policy = policy,
                        .profile = profile,
                        .fleet = views,
                        .prefills = prefills,
                        .decodes = decodes,
                        .avoid = avoid,
                        .avoid_pairs = avoid_pairs,
                        .links = links,
                        .now = kNow,
                        .chance = turn * 7919,
                        .turn = turn});
  }
};

using Pair = std::pair<std::uint32_t, std::uint32_t>;
Pair of(const std::optional<PairChoice>& choice) { return {choice->prefill.worker, choice->decode.worker}; }

TEST(PairRoute, TakesTheShorterQueueAndTheFreerPages) {
  Fleet fleet(2, 2);
  fleet.views[0].load->uncached_tokens = 5000;
  fleet.views[3].load->free_pages = 0;
  EXPECT_EQ(of(fleet.choose()), Pair(1, 2));
  EXPECT_EQ(fleet.choose()->reason(), RouteReason::kQueue);
  fleet.views[2].load->running = 200;  // 200 rows in every step: worse than the wait for pages
  EXPECT_EQ(of(fleet.choose()), Pair(1, 3));
}

TEST(PairRoute, TheLinkBetweenCounts) {
  Fleet fleet(2, 2);
  for (int i = 0; i < 20; ++i) {
    for (const auto& [prefill, decode, seconds] :
         {std::tuple{1, 3, 0.5}, {1, 4, 0.4}, {2, 3, 0.05}, {2, 4, 0.3}})
      fleet.links.learn_link(prefill, decode, seconds);
  }
  EXPECT_EQ(of(fleet.choose()), Pair(1, 2));
  EXPECT_NEAR(fleet.choose()->link_seconds, 0.05, 1e-9);
  fleet.views[1].load->uncached_tokens = 4000;  // 2 s of prompts, against 0.35 s of network
  EXPECT_EQ(of(fleet.choose()), Pair(0, 3));
}

TEST(PairRoute, ItTakesOneOfEach) {
  EXPECT_FALSE(Fleet(2, 0).choose());
  EXPECT_FALSE(Fleet(0, 2).choose());
  Fleet fleet(1, 1);
  EXPECT_EQ(fleet.choose()->reason(), RouteReason::kOnly);
  fleet.views[1].available = false;
  EXPECT_FALSE(fleet.choose());
}

TEST(PairRoute, APairThatFailsIsAvoidedAndItsWorkersAreNot) {
  Fleet fleet(2, 2);
  EXPECT_TRUE(fleet.links.failed(1, 3, kNow));
  EXPECT_EQ(fleet.links.open(kNow), 1U);
  std::set<Pair> seen;
  for (std::uint64_t turn = 0; turn < 40; ++turn)
    seen.insert(of(fleet.choose(RoutePolicy::kRoundRobin, turn)));
  EXPECT_EQ(seen, (std::set<Pair>{{0, 3}, {1, 2}, {1, 3}}));
  for (const auto& [prefill, decode] : {Pair(1, 4), Pair(2, 3), Pair(2, 4)})
    fleet.links.failed(prefill, decode, kNow);
  EXPECT_FALSE(fleet.choose()) << "every pair's breaker is open";
}

TEST(PairRoute, WhatThisRequestHasFailedOnComesLast) {
  Fleet fleet(2, 2);
  EXPECT_EQ(of(fleet.choose(RoutePolicy::kShortestQueue, 0, {0, 2}, {{0, 2}})), Pair(1, 3));
  Fleet small(1, 2);
  EXPECT_EQ(of(small.choose(RoutePolicy::kShortestQueue, 0, {0, 1}, {{0, 1}})), Pair(0, 2));
  Fleet one(1, 1);
  const auto last = one.choose(RoutePolicy::kShortestQueue, 0, {0, 1}, {{0, 1}});
  EXPECT_EQ(of(last), Pair(0, 1));
  EXPECT_EQ(last->reason(), RouteReason::kLastResort);
}

TEST(PairRoute, BeyondTheBestThereAreOthers) {
  // Two racks of nine and nine with nothing between them: the best prefill workers in one, the best decode
  // workers in the other.
  Fleet fleet(18, 18);
  for (std::uint32_t i = 0; i < 9; ++i) {
    fleet.views[9 + i].load->uncached_tokens = 5000;
    fleet.views[18 + i].load->uncached_tokens = 5000;
    for (std::uint32_t j = 0; j < 9; ++j) {
      fleet.links.failed(1 + i, 28 + j, kNow);
      fleet.links.failed(10 + i, 19 + j, kNow);
    }
  }
  for (const RoutePolicy policy : {RoutePolicy::kShortestQueue, RoutePolicy::kPowerOfTwo,
                                   RoutePolicy::kRoundRobin, RoutePolicy::kRandom}) {
    for (std::uint64_t turn = 0; turn < 50; ++turn) {
      const auto choice = fleet.choose(policy, turn);
      ASSERT_TRUE(choice) << name_of(policy);
      EXPECT_EQ(choice->prefill.worker < 9, choice->decode.worker < 27) << "of one rack";
    }
  }
}

TEST(PairRoute, TurnsMeetEveryPartner) {
  const Fleet fleet(2, 2);
  std::map<Pair, int> seen;
  for (std::uint64_t turn = 0; turn < 40; ++turn) ++seen[of(fleet.choose(RoutePolicy::kRoundRobin, turn))];
  EXPECT_EQ(seen.size(), 4U);
  for (const auto& [pair, times] : seen) EXPECT_EQ(times, 10) << pair.first << ", " << pair.second;
}

TEST(PairRoute, OnlyOneModelFilesWorkersMeet) {
  Fleet fleet(2, 2);
  fleet.views[1].kind = fleet.views[2].kind = 5;
  for (std::uint64_t turn = 0; turn < 8; ++turn) {
    const Pair pair = of(fleet.choose(RoutePolicy::kShortestQueue, turn));
    EXPECT_EQ(fleet.views[pair.first].kind, fleet.views[pair.second].kind);
  }
  fleet.views[3].available = false;
  EXPECT_EQ(of(fleet.choose()), Pair(1, 2));
}

TEST(PairTable, ForgetsTheOldestAndOpensForATrial) {
  PairTable table({.failures = 2, .open_seconds = 5});
  EXPECT_EQ(table.link_seconds(1, 2), 0);
  table.learn_link(1, 2, 0.2);
  EXPECT_EQ(table.link_seconds(1, 3), 0.2) << "what is not known is as the others";
  table.learn_link(1, 2, -1);
  table.learn_link(1, 2, 1e9);
  EXPECT_EQ(table.link_seconds(1, 2), 0.2) << "no measurement";
  EXPECT_FALSE(table.failed(1, 2, kNow));
  EXPECT_TRUE(table.failed(1, 2, kNow)) << "opened by this one";
  EXPECT_FALSE(table.passes(1, 2, kNow));
  EXPECT_TRUE(table.passes(1, 2, kNow + 6s));
  table.sent(1, 2, kNow + 6s);
  EXPECT_FALSE(table.passes(1, 2, kNow + 6s)) << "one at a time";
  table.forgotten(1, 2);
  EXPECT_TRUE(table.passes(1, 2, kNow + 6s));
  table.succeeded(1, 2);
  EXPECT_TRUE(table.passes(1, 2, kNow + 6s));
  for (std::uint64_t i = 0; i < 2 * PairTable::kMost; ++i) table.sent(10 + i, 1, kNow);
  EXPECT_EQ(table.known(), PairTable::kMost);
}

// A decision may take 50 us among 1,000 workers; this bound leaves room for a busy machine.
TEST(PairRoute, DecidesAmongAThousandInMicroseconds) {
  Fleet fleet(500, 500);
  for (std::uint32_t i = 0; i < 1000; ++i) fleet.views[i].load->uncached_tokens = 100 + i % 37;
  const TimePoint begin = now();
  std::uint64_t sum = 0;
  constexpr int kDecisions = 2000;
  for (std::uint64_t turn = 0; turn < kDecisions; ++turn)
    sum += of(fleet.choose(RoutePolicy::kShortestQueue, turn)).second;
  const double each = seconds_between(begin, now()) / kDecisions;
  std::printf("a pair among 1,000 workers: %.1f us\n", each * 1e6);
  EXPECT_GT(sum, 0U);
  EXPECT_LT(each, 500e-6);
}

}  // namespace
}  // namespace shoal::policy
