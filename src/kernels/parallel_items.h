// Deals independent items to a context's threads, or runs them here where waking threads costs more.
//
// Thread-safety: belongs to the context's executor thread, as ThreadPool::run does.
// Invariants: f sees every item once; which thread runs it must not change a bit of the result.

#pragma once

#include <cstdint>

#include "kernels/context.h"

namespace shoal::kernels {

// A spinning thread is handed work and joined in about a microsecond (anchors: 0.5 us), a sleeping one in 50.
// Work below this many nanoseconds on one thread is not worth sharing.
inline constexpr std::int64_t kWorthSharingNs = 4000;

// f(begin, end) over pieces of [0, n), `grain` items each. work_ns: rough time of all items on one thread.
template <typename F>
void parallel_items(const Context& context, std::int64_t n, std::int64_t grain, std::int64_t work_ns, F&& f) {
  if (n <= 0) return;
  if (context.pool == nullptr || context.pool->size() == 1 || work_ns < kWorthSharingNs) {
    f(std::int64_t{0}, n);
    return;
  }
  context.pool->parallel_for(n, grain, [&](std::int64_t begin, std::int64_t end, int) { f(begin, end); });
}

}  // namespace shoal::kernels
