#include "policy/retraction.h"

#include <algorithm>
#include <cmath>

namespace shoal::policy {
namespace {

// A return that is predicted to take less is no better: some microseconds must not decide over pages.
constexpr double kLeastReturn = 1e-3;
// An observation counts a quarter: the fourth after a change is two thirds of the way.
constexpr double kNewest = 0.25;

double worth(const RetractionCandidate& candidate) {
  return static_cast<double>(candidate.pages_won) * candidate.steps_left /
         std::max(candidate.return_seconds, kLeastReturn);
}

}  // namespace

std::optional<std::size_t> choose_retracted(std::span<const RetractionCandidate> candidates) {
  std::optional<std::size_t> oldest;
  std::size_t holders = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const RetractionCandidate& candidate = candidates[i];
    if (candidate.pages_held == 0) continue;
    if (candidate.leaving) return std::nullopt;
    ++holders;
    if (!oldest || candidate.arrival < candidates[*oldest].arrival) oldest = i;
  }
  if (holders < 2) return oldest;
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const RetractionCandidate& candidate = candidates[i];
    if (candidate.pages_held == 0 || i == *oldest) continue;
    if (best) {
      const double here = worth(candidate), there = worth(candidates[*best]);
      if (here < there || (here == there && candidate.arrival < candidates[*best].arrival)) continue;
    }
    best = i;
  }
  return best;
}

const char* retraction_name(Retraction way) { return way == Retraction::kOffload ? "offload" : "recompute"; }

Retraction choose_return(const ReturnSeconds& seconds, std::optional<Retraction> only) {
  if (!seconds.offload || only == Retraction::kRecompute) return Retraction::kRecompute;
  if (only == Retraction::kOffload) return Retraction::kOffload;
  return *seconds.offload < seconds.recompute ? Retraction::kOffload : Retraction::kRecompute;
}

double recompute_seconds(const CostModel& cost, std::int64_t cached, std::int64_t tokens,
                         std::int32_t max_rows) {
  double seconds = 0;
  while (cached < tokens) {
    const std::int64_t count = std::min<std::int64_t>(tokens - cached, std::max(max_rows, 1));
    StepShape shape;
    shape.add_prefill(cached, count);
    seconds += cost.predict(shape);
    cached += count;
  }
  return seconds;
}

void CopyRate::observe(double bytes, double seconds) {
  const double rate = bytes / seconds;
  if (!(bytes > 0) || !(seconds > 0) || !std::isfinite(rate)) return;
  rate_ = observed_ ? rate_ + kNewest * (rate - rate_) : rate;
  observed_ = true;
}

}  // namespace shoal::policy
