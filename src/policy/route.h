// Which worker gets a request: pure functions of profile, fleet and time.
//
// Thread-safety: pure.
// Invariants:
//   1. Only available workers among the candidates are chosen; nothing where there is none.
//   2. The same input gives the same choice; chance is passed in as a number.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "policy/fleet.h"
#include "policy/profile.h"

namespace shoal::policy {

enum class RoutePolicy : std::uint8_t { kShortestQueue, kPowerOfTwo, kRoundRobin, kRandom };
std::optional<RoutePolicy> route_policy_of(std::string_view name);
const char* name_of(RoutePolicy policy);

// What of a request a worker is to do: all of it, its prompt alone, or all but the prompt.
enum class RequestPart : std::uint8_t { kWhole, kPrefill, kDecode };

// Tokens of prompts that wait or are being computed there. Nothing where it is unknown.
std::optional<double> known_waiting(const WorkerView& worker, TimePoint now);
// The same and what else stands before a request there, in tokens. A running sequence counts as
// kTokensPerSequence: it takes a row of every step, and a prompt of 1,024 tokens takes some 32 of them beside
// others.
inline constexpr double kTokensPerSequence = 32;
std::optional<double> known_queue(const WorkerView& worker, TimePoint now);

// Of KV, that so many tokens take.
double pages_of(double tokens);

// What a worker that has not shown its speed yet is taken for, in tokens of prompts a second: as fast as the
// others are on average. With any other number it would get everything, or nothing.
double usual_rate(std::span<const WorkerView> fleet, std::span<const std::uint32_t> candidates);

// Predicted seconds until the part is done (a whole: until its first token), were it given to a worker with
// `queue` tokens before it: queue and uncached work at the worker's speed, and the wait for pages where it
// has too few. usual: usual_rate().
double score(const WorkerView& worker, RequestPart part, double queue, const Profile& profile, double usual);

struct RouteInput {
  RoutePolicy policy = RoutePolicy::kShortestQueue;
  RequestPart part = RequestPart::kWhole;
  const Profile& profile;
  std::span<const WorkerView> fleet;
  std::span<const std::uint32_t> candidates;  // indexes into fleet: those that serve the model
  // Indexes that have failed this request already: taken only where nobody else is left.
  std::span<const std::uint32_t> avoid;
  double usual = 0;  // usual_rate(); 0: of the candidates
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
  double waiting = 0;  // of these, prompts'
  double seconds = 0;  // the score
};

std::optional<RouteChoice> choose(const RouteInput& input);

// The same, and whom the policy would take in its place: the best first, at most `most`.
std::vector<RouteChoice> rank(const RouteInput& input, std::size_t most);

}  // namespace shoal::policy
