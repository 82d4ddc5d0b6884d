#include "policy/batch.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "layout/coordinate_set.h"

namespace shoal::policy {
namespace {

constexpr std::int32_t kFewestPipelinedRows = 128;

double work_left(const CostModel& cost, const PrefillCandidate& candidate) {
  StepShape shape;
  shape.add_prefill(candidate.context, candidate.remaining, candidate.lanes.degree);
  return cost.predict(shape);
}

// What is dealt so far, by coordinate.
struct Dealt {
  StepShape step;
  std::int64_t rows = 0;  // of prefill
  std::int64_t rows_left = 0;
  bool full = false;
};

class Dealer {
 public:
  Dealer(const CostModel& cost, std::span<const StepShape> decode, std::int64_t rows_left, bool fixed)
      : cost_(cost), fixed_(fixed) {
    for (const StepShape& shape : decode) dealt_.push_back({shape, 0, rows_left, false});
  }

  // Most tokens that the candidate's coordinates have rows for; 0 where one of them is full.
  std::int64_t most(const PrefillCandidate& candidate) const {
    std::int64_t rows = std::numeric_limits<std::int64_t>::max();
    for (std::int32_t lane = 0; lane < candidate.lanes.degree; ++lane) {
      const Dealt& at = of(candidate, lane);
      rows = std::min(rows, at.full ? 0 : at.rows_left);
    }
    if (!fixed_) rows *= candidate.lanes.degree;
    return std::min({candidate.remaining, candidate.limit, rows});
  }
  // Of those, as many as keep the step within `seconds`, but never less than the floor.
  std::int64_t within(const PrefillCandidate& candidate, std::int64_t most, double seconds) const {
    const auto fits = [&](std::int64_t tokens) {
      for (std::int32_t lane = 0; lane < candidate.lanes.degree; ++lane) {
        StepShape shape = of(candidate, lane).step;
        shape.add_prefill(candidate.context, tokens, candidate.lanes.degree);
        if (cost_.predict_high(shape) > seconds) return false;
      }
      return true;
    };
    std::int64_t low = 0;  // fits, or is nothing
    std::int64_t high = most;
    while (low < high) {
      const std::int64_t middle = low + (high - low + 1) / 2;
      if (fits(middle)) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return std::max(low, std::min<std::int64_t>(most, kPrefillFloor - rows(candidate)));
  }
  void deal(const PrefillCandidate& candidate, std::int64_t tokens) {
    const std::int32_t degree = candidate.lanes.degree;
    for (std::int32_t lane = 0; lane < degree; ++lane) {
      Dealt& at = of(candidate, lane);
      at.step.add_prefill(candidate.context, tokens, degree);
      at.rows += tokens;
      at.rows_left -= fixed_ ? tokens : (tokens + degree - 1) / degree;
    }
  }
  // Its time is used up.
  void close(const PrefillCandidate& candidate) {
    for (std::int32_t lane = 0; lane < candidate.lanes.degree; ++lane) of(candidate, lane).full = true;
  }
  // Tokens of prompts that its coordinates have been dealt, on the one that has fewest.
  std::int64_t rows(const PrefillCandidate& candidate) const {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (std::int32_t lane = 0; lane < candidate.lanes.degree; ++lane)
      least = std::min(least, of(candidate, lane).rows);
    return least;
  }

 private:
  Dealt& of(const PrefillCandidate& candidate, std::int32_t lane) {
    return dealt_[static_cast<std::size_t>(candidate.lanes.at(lane))];
  }
  const Dealt& of(const PrefillCandidate& candidate, std::int32_t lane) const {
    return dealt_[static_cast<std::size_t>(candidate.lanes.at(lane))];
  }

  const CostModel& cost_;
  bool fixed_;
  std::vector<Dealt> dealt_;
};

}  // namespace

std::int32_t pipelined_rows(std::int64_t waiting, const BatchLimits& limits) {
  if (limits.stages == 1) return limits.max_rows;
  // A 32nd part for each stage that idles costs 3 % each; below 128 rows products lose more than that.
  const std::int64_t rows = waiting / (std::int64_t{32} * (limits.stages - 1));
  return static_cast<std::int32_t>(
      std::clamp<std::int64_t>(rows, std::min(kFewestPipelinedRows, limits.max_rows), limits.max_rows));
}

std::vector<PrefillShare> share_prefill(const CostModel& cost, std::span<const StepShape> decode,
                                        std::span<const PrefillCandidate> candidates,
                                        const BatchLimits& limits) {
  std::vector<PrefillShare> shares;
  std::vector<std::size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<double> effective(candidates.size());
  for (std::size_t i = 0; i < candidates.size(); ++i)
    effective[i] = work_left(cost, candidates[i]) - candidates[i].waited;
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return effective[a] < effective[b]; });

  const bool streams = limits.streams || std::ranges::any_of(decode, [](const StepShape& shape) {
                         return shape.decode_rows > 0;
                       });
  const double seconds = streams ? limits.token_gap : limits.token_gap * kIdleGaps;
  std::int64_t waiting = 0;
  for (const PrefillCandidate& candidate : candidates) waiting += candidate.remaining;
  // With coordinates that take no part nobody shares anything.
  CoordinateSet working;
  for (const PrefillCandidate& candidate : candidates) {
    for (std::int32_t lane = 0; lane < candidate.lanes.degree; ++lane) working.add(candidate.lanes.at(lane));
  }
  const bool fixed = limits.fixed_chunk > 0;
  Dealer dealer(cost, decode,
                fixed ? std::min(limits.fixed_chunk, limits.max_rows)
                      : pipelined_rows(waiting / std::max(working.count(), 1), limits),
                fixed);
  for (const std::size_t index : order) {
    const PrefillCandidate& candidate = candidates[index];
    const std::int64_t most = dealer.most(candidate);
    if (most <= 0) continue;
    const std::int64_t tokens = fixed ? most : dealer.within(candidate, most, seconds);
    if (tokens > 0) {
      shares.push_back({index, tokens});
      dealer.deal(candidate, tokens);
    }
    // Whoever did not get all it could take has used the time up.
    if (tokens <= 0 || (tokens < most && dealer.rows(candidate) >= kPrefillFloor)) dealer.close(candidate);
  }
  return shares;
}

}  // namespace shoal::policy
