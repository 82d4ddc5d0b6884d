#include "policy/route.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <numeric>
#include <vector>

namespace shoal::policy {
namespace {

const TimePoint kNow = TimePoint{} + std::chrono::seconds(1000);

WorkerView idle() {
  WorkerView worker;
  worker.available = true;
  worker.load = WorkerLoad{kNow, 0, 0, 0, 1000};
  worker.pages = 1000;
  return worker;
}

WorkerView with_queue(std::int64_t tokens) {
  WorkerView worker = idle();
  worker.load->uncached_tokens = tokens;
  return worker;
}

struct Case {
  const char* name;
  std::vector<WorkerView> fleet;
  RoutePolicy policy = RoutePolicy::kShortestQueue;
  std::vector<std::uint32_t> avoid{};
  std::uint64_t turn = 0;
  int chosen = -1;  // -1: nobody
  RouteReason reason = RouteReason::kOnly;
};

WorkerView changed(WorkerView worker, const std::function<void(WorkerView&)>& change) {
  change(worker);
  return worker;
}

std::vector<Case> cases() {
  const auto down = changed(idle(), [](WorkerView& worker) { worker.available = false; });
  const auto stale =
      changed(idle(), [](WorkerView& worker) { worker.load->at = kNow - std::chrono::seconds(3); });
  const auto silent = changed(idle(), [](WorkerView& worker) { worker.load.reset(); });
  const auto reserved = changed(
      idle(), [](WorkerView& worker) { worker.reserved_tokens = worker.reserved_since_report = 4000; });
  const auto running = changed(idle(), [](WorkerView& worker) { worker.load->running = 20; });
  const auto no_pages = changed(idle(), [](WorkerView& worker) { worker.load->free_pages = 0; });
  const auto fast = changed(with_queue(1000), [](WorkerView& worker) { worker.prefill_rate = 20000; });
  const auto slow = changed(with_queue(300), [](WorkerView& worker) { worker.prefill_rate = 2000; });
  const auto promised = changed(idle(), [](WorkerView& worker) { worker.pages_since_report = 1000; });
  using enum RouteReason;
  return {
      {"nobody there", {}, RoutePolicy::kShortestQueue, {}, 0, -1, kOnly},
      {"nobody up", {down, down}, RoutePolicy::kShortestQueue, {}, 0, -1, kOnly},
      {"the only one, however long its queue",
       {down, with_queue(100000)},
       RoutePolicy::kShortestQueue,
       {},
       0,
       1,
       kOnly},
      {"the shorter queue",
       {with_queue(900), with_queue(100)},
       RoutePolicy::kShortestQueue,
       {},
       0,
       1,
       kQueue},
      {"what was given since the report counts",
       {reserved, with_queue(3000)},
       RoutePolicy::kShortestQueue,
       {},
       0,
       1,
       kQueue},
      {"a stale load is not idle",
       {stale, with_queue(500), with_queue(700)},
       RoutePolicy::kShortestQueue,
       {},
       0,
       1,
       kQueue},
      {"a missing load is not idle",
       {silent, with_queue(500)},
       RoutePolicy::kShortestQueue,
       {},
       1,
       1,
       kQueue},
      {"sequences that run are rows of each step",
       {running, with_queue(500)},
       RoutePolicy::kShortestQueue,
       {},
       0,
       1,
       kQueue},
      {"a pool without room is a wait",
       {no_pages, with_queue(500)},
       RoutePolicy::kShortestQueue,
       {},
       0,
       1,
       kQueue},
      {"a worker that has not shown its speed is as fast as the others",
       {with_queue(500), fast},
       RoutePolicy::kShortestQueue,
       {},
       0,
       0,
       kQueue},
      {"pages promised since the report are not free",
       {promised, with_queue(500)},
       RoutePolicy::kShortestQueue,
       {},
       0,
       1,
       kQueue},
      {"a faster worker has less of a queue", {slow, fast}, RoutePolicy::kShortestQueue, {}, 0, 1, kQueue},
      {"equals take turns: first", {idle(), idle(), idle()}, RoutePolicy::kShortestQueue, {}, 0, 0, kQueue},
      {"equals take turns: second", {idle(), idle(), idle()}, RoutePolicy::kShortestQueue, {}, 1, 1, kQueue},
      {"who has failed it is avoided",
       {idle(), with_queue(900)},
       RoutePolicy::kShortestQueue,
       {0},
       0,
       1,
       kOnly},
      {"unless nobody else is left", {idle(), down}, RoutePolicy::kShortestQueue, {0}, 0, 0, kLastResort},
      {"round robin skips who is down", {idle(), down, idle()}, RoutePolicy::kRoundRobin, {}, 3, 2, kTurn},
      {"two of two: the shorter", {with_queue(900), idle()}, RoutePolicy::kPowerOfTwo, {}, 0, 1, kTwo},
  };
}

TEST(Route, ChoosesFromTheSnapshotAlone) {
  const Profile profile;
  for (const Case& each : cases()) {
    std::vector<std::uint32_t> all(each.fleet.size());
    std::iota(all.begin(), all.end(), 0U);
    const auto choice = choose({.policy = each.policy,
                                .profile = profile,
                                .fleet = each.fleet,
                                .candidates = all,
                                .avoid = each.avoid,
                                .now = kNow,
                                .chance = 7,
                                .turn = each.turn});
    ASSERT_EQ(choice.has_value(), each.chosen >= 0) << each.name;
    if (!choice) continue;
    EXPECT_EQ(static_cast<int>(choice->worker), each.chosen) << each.name;
    EXPECT_EQ(choice->reason, each.reason) << each.name;
  }
}

TEST(Route, OnlyCandidatesAreChosen) {
  const std::vector<WorkerView> fleet(4, idle());
  const std::vector<std::uint32_t> some{1, 3};
  const Profile profile;
  std::map<std::uint32_t, int> seen;
  for (const RoutePolicy policy : {RoutePolicy::kShortestQueue, RoutePolicy::kPowerOfTwo,
                                   RoutePolicy::kRoundRobin, RoutePolicy::kRandom}) {
    for (std::uint64_t turn = 0; turn < 100; ++turn) {
      ++seen[choose({.policy = policy,
                     .profile = profile,
                     .fleet = fleet,
                     .candidates = some,
                     .avoid = {},
                     .now = kNow,
                     .chance = turn * 0x9e3779b97f4a7c15,
                     .turn = turn})
                 ->worker];
    }
  }
  EXPECT_EQ(seen.size(), 2U);
  EXPECT_GT(seen[1], 120);
  EXPECT_GT(seen[3], 120);
}

TEST(Route, EveryPolicyHasItsName) {
  for (const RoutePolicy policy : {RoutePolicy::kShortestQueue, RoutePolicy::kPowerOfTwo,
                                   RoutePolicy::kRoundRobin, RoutePolicy::kRandom})
    EXPECT_EQ(route_policy_of(name_of(policy)), policy);
  EXPECT_EQ(route_policy_of("nearest"), std::nullopt);
}

// A decision may take 50 us among 1,000 workers; this bound leaves room for a busy machine.
TEST(Route, DecidesAmongAThousandInMicroseconds) {
  std::vector<WorkerView> fleet;
  for (int i = 0; i < 1000; ++i) fleet.push_back(with_queue(100 + i % 37));
  std::vector<std::uint32_t> all(fleet.size());
  std::iota(all.begin(), all.end(), 0U);
  const Profile profile;
  const TimePoint begin = now();
  std::uint64_t sum = 0;
  constexpr int kDecisions = 2000;
  for (std::uint64_t turn = 0; turn < kDecisions; ++turn)
    sum += choose({.policy = RoutePolicy::kShortestQueue,
                   .profile = profile,
                   .fleet = fleet,
                   .candidates = all,
                   .avoid = {},
                   .now = kNow,
                   .chance = turn,
                   .turn = turn})
               ->worker;
  const double each = seconds_between(begin, now()) / kDecisions;
  RecordProperty("microseconds", std::to_string(each * 1e6));
  std::printf("a decision among 1,000 workers: %.1f us\n", each * 1e6);
  EXPECT_GT(sum, 0U);
  EXPECT_LT(each, 500e-6);
}

}  // namespace
}  // namespace shoal::policy
