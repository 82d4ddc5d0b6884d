#include "policy/route.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace shoal::policy {
namespace {

constexpr std::array kPolicies = {std::pair{"shortest_queue", RoutePolicy::kShortestQueue},
                                  std::pair{"power_of_two", RoutePolicy::kPowerOfTwo},
                                  std::pair{"round_robin", RoutePolicy::kRoundRobin},
                                  std::pair{"random", RoutePolicy::kRandom}};

// Where none has been learned: what two cores do with a small model. It only has to be the same for all.
constexpr double kFirstRate = 2000;
constexpr double kPageTokens = 32;
// A sequence that ends gives its pages back; how soon is unknown here, so that a shortage of as much as the
// request needs counts as a second.
constexpr double kSecondsShort = 1;

// splitmix64's last step: neighbouring numbers give unrelated ones.
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

class Chooser {
 public:
  explicit Chooser(const RouteInput& input) : input_(input) {
    for (const std::uint32_t index : input.candidates) {
      if (!usable(index)) continue;
      ++usable_;
      if (const auto queue = known_queue(input.fleet[index], input.now))
        worst_known_ = std::max(worst_known_, *queue);
    }
    retried_ = usable_ == 0 && !input.avoid.empty();
    if (retried_) {
      for (const std::uint32_t index : input.candidates) usable_ += usable(index) ? 1 : 0;
    }
  }

  std::size_t usable() const { return usable_; }
  bool retried() const { return retried_; }

  bool usable(std::uint32_t index) const {
    return input_.fleet[index].available &&
           (retried_ || std::ranges::find(input_.avoid, index) == input_.avoid.end());
  }

  // The n-th usable candidate.
  std::uint32_t nth(std::uint64_t n) const {
    for (const std::uint32_t index : input_.candidates) {
      if (usable(index) && n-- == 0) return index;
    }
    return input_.candidates.front();
  }

  double queue(std::uint32_t index) const {
    const WorkerView& worker = input_.fleet[index];
    const auto known = known_queue(worker, input_.now);
    return known ? *known : worst_known_ + worker.reserved_tokens + kTokensPerSequence * worker.in_flight;
  }

  RouteChoice choice(std::uint32_t index, RouteReason reason) const {
    const double before = queue(index);
    return {index, reason, before, score(input_.fleet[index], before, input_.profile)};
  }

  // The least score; of equals, the next in turn.
  std::uint32_t shortest() const {
    std::uint32_t best = 0;
    double least = INFINITY;
    const std::size_t size = input_.candidates.size();
    for (std::size_t i = 0; i < size; ++i) {
      const std::uint32_t index = input_.candidates[(i + input_.turn) % size];
      if (!usable(index)) continue;
      const double seconds = score(input_.fleet[index], queue(index), input_.profile);
      if (seconds < least) {
        least = seconds;
        best = index;
      }
    }
    return best;
  }

  std::uint32_t better_of_two() const {
    const std::uint64_t first = mixed(input_.chance) % usable_;
    std::uint64_t second = mixed(input_.chance + 1) % (usable_ - 1);
    if (second >= first) ++second;
    const std::uint32_t a = nth(first);
    const std::uint32_t b = nth(second);
    return score(input_.fleet[b], queue(b), input_.profile) < score(input_.fleet[a], queue(a), input_.profile)
               ? b
               : a;
  }

 private:
  const RouteInput& input_;
  std::size_t usable_ = 0;
  double worst_known_ = 0;
  bool retried_ = false;  // whom the request has failed on is all there is
};

}  // namespace

std::optional<RoutePolicy> route_policy_of(std::string_view name) {
  for (const auto& [known, policy] : kPolicies) {
    if (name == known) return policy;
  }
  return std::nullopt;
}

const char* name_of(RoutePolicy policy) {
  for (const auto& [name, known] : kPolicies) {
    if (known == policy) return name;
  }
  return "";
}

const char* name_of(RouteReason reason) {
  switch (reason) {
    case RouteReason::kOnly:
      return "only";
    case RouteReason::kQueue:
      return "shortest_queue";
    case RouteReason::kTwo:
      return "power_of_two";
    case RouteReason::kTurn:
      return "round_robin";
    case RouteReason::kRandom:
      return "random";
    case RouteReason::kLastResort:
      return "last_resort";
  }
  return "only";
}

std::optional<double> known_queue(const WorkerView& worker, TimePoint now) {
  if (!worker.load || seconds_between(worker.load->at, now) > kLoadSeconds) return std::nullopt;
  // What was given since the report is not in it; what this gateway knows to wait there surely waits.
  const double said = static_cast<double>(worker.load->uncached_tokens) + worker.reserved_since_report;
  const double sequences = worker.load->running + worker.load->waiting + worker.in_flight_since_report;
  return std::max(said, worker.reserved_tokens) +
         kTokensPerSequence * std::max<double>(sequences, worker.in_flight);
}

double score(const WorkerView& worker, double queue, const Profile& profile) {
  const double rate = worker.prefill_rate > 0 ? worker.prefill_rate : kFirstRate;
  double seconds = (queue + profile.uncached_tokens()) / rate;
  if (worker.load && worker.pages > 0) {
    const double needed = std::ceil((profile.input_tokens + profile.output_p50) / kPageTokens);
    const double lacking = needed - static_cast<double>(worker.load->free_pages);
    if (lacking > 0) seconds += kSecondsShort * lacking / needed;
  }
  return seconds;
}

std::optional<RouteChoice> choose(const RouteInput& input) {
  const Chooser chooser(input);
  if (chooser.usable() == 0) return std::nullopt;
  if (chooser.retried()) return chooser.choice(chooser.shortest(), RouteReason::kLastResort);
  if (chooser.usable() == 1) return chooser.choice(chooser.nth(0), RouteReason::kOnly);
  switch (input.policy) {
    case RoutePolicy::kShortestQueue:
      return chooser.choice(chooser.shortest(), RouteReason::kQueue);
    case RoutePolicy::kPowerOfTwo:
      return chooser.choice(chooser.better_of_two(), RouteReason::kTwo);
    case RoutePolicy::kRoundRobin:
      return chooser.choice(chooser.nth(input.turn % chooser.usable()), RouteReason::kTurn);
    case RoutePolicy::kRandom:
      return chooser.choice(chooser.nth(mixed(input.chance) % chooser.usable()), RouteReason::kRandom);
  }
  return std::nullopt;
}

}  // namespace shoal::policy
