#include "layout/layout_speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace shoal {
namespace {

// Of weights, by one thread: 10 GB/s is what a core of a server reads alone, give or take a half.
constexpr double kBytesPerSecond = 10e9;

}  // namespace

// Time that passes between two tokens of the worker as a whole: stages work at the same time, so the slowest
// one sets it; its ranks read their shares at the same time, and meet at every sum.
std::optional<std::string> why_slower_than_one_rank(const LayoutFacts& facts) {
  const Degrees& d = facts.degrees;
  const std::int32_t ranks = d.tp * d.pp * d.cp;
  if (ranks == 1) return std::nullopt;
  // Ranks without a core of their own take turns.
  const double speed = kBytesPerSecond * facts.threads;
  const double turns = std::max(1.0, static_cast<double>(ranks) * facts.threads / facts.cores);
  const double share =
      facts.tp_split.empty()
          ? 1.0 / d.tp
          : static_cast<double>(*std::max_element(facts.tp_split.begin(), facts.tp_split.end())) /
                std::accumulate(facts.tp_split.begin(), facts.tp_split.end(), 0);
  const double all = std::accumulate(facts.stage_bytes.begin(), facts.stage_bytes.end(), 0.0);
  const double slowest = *std::max_element(facts.stage_bytes.begin(), facts.stage_bytes.end());
  const double alone = all / speed * std::max(1.0, static_cast<double>(facts.threads) / facts.cores);
  const double sums = d.tp == 1 ? 0 : facts.sums * facts.sum_seconds / d.pp;
  const double reading = slowest * share / speed * turns;
  if (reading + sums <= alone) return std::nullopt;
  if (turns > 1)
    return fmt::format("{} ranks of {} threads share {} cores: they take turns, and one rank would be faster",
                       ranks, facts.threads, facts.cores);
  if (reading > 0.95 * alone)
    return fmt::format("one part holds {:.0f} % of the model: one rank would be as fast",
                       100 * slowest * share / all);
  return fmt::format(
      "the {} sums of a token take about {:.1f} ms, and a rank's share of the weights saves {:.1f} ms: the "
      "model is too small to share, and one rank would be faster",
      facts.sums, 1e3 * sums, 1e3 * (alone - reading));
}

}  // namespace shoal
