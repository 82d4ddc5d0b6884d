#include "policy/route.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/mix64.h"

namespace shoal::policy {
namespace {

constexpr std::array kPolicies = {std::pair{"shortest_queue", RoutePolicy::kShortestQueue},
                                  std::pair{"power_of_two", RoutePolicy::kPowerOfTwo},
                                  std::pair{"round_robin", RoutePolicy::kRoundRobin},
                                  std::pair{"random", RoutePolicy::kRandom}};

// Where nobody has shown its speed: what two cores do with a small model. It only has to be the same for all.
constexpr double kFirstRate = 2000;
constexpr double kPageTokens = 32;
// A sequence that ends gives its pages back; how soon is unknown here, so that a shortage of as much as the
// request needs counts as a second.
constexpr double kSecondsShort = 1;

class Chooser {
 public:
  explicit Chooser(const RouteInput& input)
      : input_(input),
        usual_(input.usual > 0 ? input.usual : usual_rate(input.fleet, input.candidates)),
        known_(input.candidates.size(), -1) {
    for (std::size_t i = 0; i < known_.size(); ++i) {
      const std::uint32_t index = input.candidates[i];
      if (!usable(index)) continue;
      ++usable_;
      known_[i] = known_queue(input.fleet[index], input.now).value_or(-1);
      worst_known_ = std::max(worst_known_, known_[i]);
    }
    retried_ = usable_ == 0 && !input.avoid.empty();
    if (retried_) {
      for (const std::uint32_t index : input.candidates) usable_ += usable(index) ? 1 : 0;
    }
  }

  std::size_t usable() const { return usable_; }
  bool retried() const { return retried_; }

  // The least scores in order; of equals, the next in turn comes first.
  std::vector<RouteChoice> shortest(std::size_t most, RouteReason reason) const {
    std::vector<RouteChoice> best;
    const std::size_t size = input_.candidates.size();
    best.reserve(most + 1);
    for (std::size_t i = 0, place = input_.turn % std::max<std::size_t>(1, size); i < size; ++i, ++place) {
      if (place == size) place = 0;
      if (!usable(input_.candidates[place])) continue;
      const RouteChoice each = choice(place, reason);
      if (best.size() == most && each.seconds >= best.back().seconds) continue;
      best.insert(std::ranges::upper_bound(best, each.seconds, {}, &RouteChoice::seconds), each);
      if (best.size() > most) best.pop_back();
    }
    return best;
  }

  // Two drawn ones, the better first.
  std::vector<RouteChoice> better_of_two() const {
    const std::uint64_t first = mix64(input_.chance) % usable_;
    std::uint64_t second = mix64(input_.chance + 1) % (usable_ - 1);
    if (second >= first) ++second;
    std::vector<RouteChoice> both{choice(nth(first), RouteReason::kTwo),
                                  choice(nth(second), RouteReason::kTwo)};
    if (both[1].seconds < both[0].seconds) std::swap(both[0], both[1]);
    return both;
  }

  // From the n-th usable candidate on.
  std::vector<RouteChoice> from(std::uint64_t n, std::size_t most, RouteReason reason) const {
    std::vector<RouteChoice> those;
    for (std::size_t i = 0; i < std::min(most, usable_); ++i)
      those.push_back(choice(nth((n + i) % usable_), reason));
    return those;
  }

 private:
  bool usable(std::uint32_t index) const {
    return input_.fleet[index].available &&
           (retried_ || std::ranges::find(input_.avoid, index) == input_.avoid.end());
  }

  // Its place among the candidates.
  std::size_t nth(std::uint64_t n) const {
    for (std::size_t place = 0; place < known_.size(); ++place) {
      if (usable(input_.candidates[place]) && n-- == 0) return place;
    }
    return 0;
  }

  RouteChoice choice(std::size_t place, RouteReason reason) const {
    const std::uint32_t index = input_.candidates[place];
    const WorkerView& worker = input_.fleet[index];
    // Those that this request has failed on have not been asked yet.
    const double known = retried_ ? known_queue(worker, input_.now).value_or(-1) : known_[place];
    const double sequences = kTokensPerSequence * worker.in_flight;
    const double before = known >= 0 ? known : worst_known_ + worker.reserved_tokens + sequences;
    return {index, reason, before, known_waiting(worker, input_.now).value_or(worker.reserved_tokens),
            score(worker, input_.part, before, input_.profile, usual_)};
  }

  const RouteInput& input_;
  const double usual_;
  std::vector<double> known_;  // queue of each candidate; below 0: unknown, or not to be taken
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

const char* name_of(WorkerRole role) {
  switch (role) {
    case WorkerRole::kBoth:
      return "both";
    case WorkerRole::kPrefill:
      return "prefill";
    case WorkerRole::kDecode:
      return "decode";
  }
  return "both";
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

std::optional<double> known_waiting(const WorkerView& worker, TimePoint now) {
  if (!worker.load || seconds_between(worker.load->at, now) > kLoadSeconds) return std::nullopt;
  // What was given since the report is not in it; what this gateway knows to wait there surely waits.
  return std::max(static_cast<double>(worker.load->uncached_tokens) + worker.reserved_since_report,
                  worker.reserved_tokens);
}

std::optional<double> known_queue(const WorkerView& worker, TimePoint now) {
  const auto waiting = known_waiting(worker, now);
  if (!waiting) return std::nullopt;
  const double sequences = worker.load->running + worker.load->waiting + worker.in_flight_since_report;
  return *waiting + kTokensPerSequence * std::max<double>(sequences, worker.in_flight);
}

double pages_of(double tokens) { return std::ceil(tokens / kPageTokens); }

double usual_rate(std::span<const WorkerView> fleet, std::span<const std::uint32_t> candidates) {
  double sum = 0;
  int known = 0;
  for (const std::uint32_t index : candidates) {
    if (fleet[index].prefill_rate <= 0) continue;
    sum += fleet[index].prefill_rate;
    ++known;
  }
  return known == 0 ? kFirstRate : sum / known;
}

double score(const WorkerView& worker, RequestPart part, double queue, const Profile& profile, double usual) {
  const double rate = worker.prefill_rate > 0 ? worker.prefill_rate : usual;
  const double uncached = part == RequestPart::kDecode ? 0 : profile.uncached_tokens();
  double seconds = (queue + uncached) / rate;
  if (worker.load && worker.pages > 0) {
    const double output = part == RequestPart::kPrefill ? 0 : profile.output_p50;
    const double needed = pages_of(profile.input_tokens + output);
    const double lacking =
        needed - (static_cast<double>(worker.load->free_pages) - worker.pages_since_report);
    if (lacking > 0) seconds += kSecondsShort * lacking / needed;
  }
  return seconds;
}

std::vector<RouteChoice> rank(const RouteInput& input, std::size_t most) {
  const Chooser chooser(input);
  if (chooser.usable() == 0 || most == 0) return {};
  if (chooser.retried()) return chooser.shortest(most, RouteReason::kLastResort);
  if (chooser.usable() == 1) return chooser.shortest(1, RouteReason::kOnly);
  switch (input.policy) {
    case RoutePolicy::kShortestQueue:
      return chooser.shortest(most, RouteReason::kQueue);
    case RoutePolicy::kPowerOfTwo:
      return chooser.better_of_two();
    case RoutePolicy::kRoundRobin:
      return chooser.from(input.turn, most, RouteReason::kTurn);
    case RoutePolicy::kRandom:
      return chooser.from(mix64(input.chance), most, RouteReason::kRandom);
  }
  return {};
}

std::optional<RouteChoice> choose(const RouteInput& input) {
  const std::vector<RouteChoice> best = rank(input, 1);
  return best.empty() ? std::nullopt : std::optional(best.front());
}

}  // namespace shoal::policy
