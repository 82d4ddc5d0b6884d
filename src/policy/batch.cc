#include "policy/batch.h"

#include <algorithm>
#include <numeric>

namespace shoal::policy {
namespace {

constexpr std::int32_t kFewestPipelinedRows = 128;

double work_left(const CostModel& cost, const PrefillCandidate& candidate) {
  StepShape shape;
  shape.add_prefill(candidate.context, candidate.remaining);
  return cost.predict(shape);
}

// The most tokens of the candidate, at most `most`, that keep the step within `seconds`.
std::int64_t tokens_within(const CostModel& cost, const StepShape& step, const PrefillCandidate& candidate,
                           std::int64_t most, double seconds) {
  const auto fits = [&](std::int64_t tokens) {
    StepShape shape = step;
    shape.add_prefill(candidate.context, tokens);
    return cost.predict_high(shape) <= seconds;
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
  return low;
}

}  // namespace

std::int32_t pipelined_rows(std::int64_t waiting, const BatchLimits& limits) {
  if (limits.stages == 1) return limits.max_rows;
  // A 32nd part for each stage that idles costs 3 % each; below 128 rows products lose more than that.
  const std::int64_t rows = waiting / (std::int64_t{32} * (limits.stages - 1));
  return static_cast<std::int32_t>(
      std::clamp<std::int64_t>(rows, std::min(kFewestPipelinedRows, limits.max_rows), limits.max_rows));
}

std::vector<PrefillShare> share_prefill(const CostModel& cost, const StepShape& decode,
                                        std::span<const PrefillCandidate> candidates,
                                        const BatchLimits& limits) {
  std::vector<PrefillShare> shares;
  std::vector<std::size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<double> effective(candidates.size());
  for (std::size_t i = 0; i < candidates.size(); ++i)
    effective[i] = work_left(cost, candidates[i]) - candidates[i].waited;
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return effective[a] < effective[b]; });

  const bool streams = limits.streams || decode.decode_rows > 0;
  const double seconds = streams ? limits.token_gap : limits.token_gap * kIdleGaps;
  std::int64_t waiting = 0;
  for (const PrefillCandidate& candidate : candidates) waiting += candidate.remaining;
  std::int64_t rows_left = limits.fixed_chunk > 0 ? std::min(limits.fixed_chunk, limits.max_rows)
                                                  : pipelined_rows(waiting, limits);
  std::int64_t dealt = 0;
  StepShape step = decode;
  for (const std::size_t index : order) {
    const PrefillCandidate& candidate = candidates[index];
    const std::int64_t most = std::min({candidate.remaining, candidate.limit, rows_left});
    if (most <= 0) continue;
    std::int64_t tokens = most;
    if (limits.fixed_chunk == 0) {
      tokens = tokens_within(cost, step, candidate, most, seconds);
      tokens = std::max(tokens, std::min<std::int64_t>(most, kPrefillFloor - dealt));
    }
    if (tokens <= 0) break;
    shares.push_back({index, tokens});
    step.add_prefill(candidate.context, tokens);
    dealt += tokens;
    rows_left -= tokens;
    // Whoever did not get all it could take has used the time up.
    if (tokens < most && dealt >= kPrefillFloor) break;
  }
  return shares;
}

}  // namespace shoal::policy
