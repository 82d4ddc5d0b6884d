// Time for policies and deadlines, passed in rather than read: decisions stay pure and testable.
//
// Thread-safety: now() may be called from any thread.

#pragma once

#include <chrono>

namespace shoal {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Seconds = std::chrono::duration<double>;

inline TimePoint now() { return Clock::now(); }
inline double seconds_between(TimePoint from, TimePoint to) { return Seconds(to - from).count(); }

}  // namespace shoal
