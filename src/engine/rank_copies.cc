// What a rank does about pages of sequences that gave way: they go to its offload buffer and come back.

#include <fmt/format.h>

#include "core/clock.h"
#include "core/thread_pool.h"
#include "engine/rank.h"

namespace shoal::engine {

// First of all that a plan does: sequences that are in none of its batches depend on it. Copies one way touch
// nothing twice, so neighbours of one direction are done side by side.
Status Rank::copy_pages(const StepPlan& plan, StepResult& result) {
  if (plan.copies.empty()) return {};
  const TimePoint begin = now();
  const auto groups = static_cast<std::int32_t>(groups_);
  for (const PageCopy& copy : plan.copies) {
    const std::int32_t owner = copy.page.pool / groups;
    const auto group = static_cast<std::size_t>(copy.page.pool % groups);
    if (options_.offload == nullptr || copy.page.pool < 0 || owner >= coordinates_ || copy.page.slot < 0 ||
        copy.page.slot >= store_.views()[group].layout.slots || copy.place < 0 ||
        copy.place >= options_.offload->places())
      return {ErrorCode::kInternal,
              fmt::format("step plan copies page {} of pool {} and place {}: there is no such thing here",
                          copy.page.slot, copy.page.pool, copy.place)};
    if (owner == coordinate_) result.copied_bytes += options_.offload->page_bytes(group);
  }
  const auto copies = std::span(plan.copies);
  for (std::size_t first = 0; first < copies.size();) {
    std::size_t end = first;
    while (end < copies.size() && copies[end].out == copies[first].out) ++end;
    const std::span<const PageCopy> run = copies.subspan(first, end - first);
    context_.pool->parallel_for(std::ssize(run), 1, [&](std::int64_t from, std::int64_t to, int) {
      for (std::int64_t i = from; i < to; ++i) {
        const PageCopy& copy = run[static_cast<std::size_t>(i)];
        if (copy.page.pool / groups != coordinate_) continue;
        const auto group = static_cast<std::size_t>(copy.page.pool % groups);
        const KvView& pool = store_.views()[group];
        if (copy.out) {
          options_.offload->put(group, pool, copy.page.slot, copy.place);
        } else {
          options_.offload->get(group, pool, copy.page.slot, copy.place);
        }
      }
    });
    first = end;
  }
  copy_seconds_ = seconds_between(begin, now());
  result.copy_seconds = copy_seconds_;
  return {};
}

}  // namespace shoal::engine
