// Which worker gets a request: pure functions of profile, fleet and time.
//
// Thread-safety: pure.
// Invariants:
//   1. Only available workers among the candidates are chosen; nothing where there is none.
//   2. The same input gives the same choice; chance is passed in as a number.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/clock.h"
#include "policy/fleet.h"
#include "policy/profile.h"

namespace shoal::policy {

enum class RoutePolicy : std::uint8_t { kShortestQueue, kPowerOfTwo, kRoundRobin, kRandom };
std::optional<RoutePolicy> route_policy_of(std::string_view name);
const char* name_of(RoutePolicy policy);

// Tokens of prompts that stand before a request there. A running sequence counts as kTokensPerSequence: it
// takes a row of every step, and a prompt of 1,024 tokens takes some 32 of them beside others.
inline constexpr double kTokensPerSequence = 32;
// Nothing where it is unknown.
std::optional<double> known_queue(const WorkerView& worker, TimePoint now);

// Predicted seconds until the request's first token, were it given to a worker with `queue` tokens before it:
// queue and uncached work at the worker's speed, and the wait for pages where it has too few.
double score(const WorkerView& worker, double queue, const Profile& profile);

struct RouteInput {
  RoutePolicy policy = RoutePolicy::kShortestQueue;
  const Profile& profile;
  std::span<const WorkerView> fleet;
  std::span<const std::uint32_t> candidates;  // indexes into fleet: those that serve the model
  // Indexes that have failed this request already: taken only where nobody else is left.
  std::span<const std::uint32_t> avoid;
  TimePoint now{};
  std::uint64_t chance = 0;  // any number
  std::uint64_t turn = 0;    // grows by one with each decision
};

enum class RouteReason : std::uint8_t { kOnly, kQueue, kTwo, kTurn, kRandom, kLastResort };
const char* name_of(RouteReason reason);

struct RouteChoice {
  std::uint32_t worker = 0;  // index into fleet
  RouteReason reason = RouteReason::kOnly;
  double queue = 0;    // tokens before the request there
  double seconds = 0;  // the score
};

std::optional<RouteChoice> choose(const RouteInput& input);

}  // namespace shoal::policy
