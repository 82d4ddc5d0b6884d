// Seconds as flags and files give them, as the time that waits take.
//
// Thread-safety: pure.

#pragma once

#include <chrono>
#include <cstdint>

namespace shoal::cli {

inline std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

}  // namespace shoal::cli
