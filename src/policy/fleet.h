// The workers as a decision sees them: what each has said of itself, how long ago, and what has been given to
// it since.
//
// Thread-safety: values.
// Invariants: a load that is missing or too old is unknown. Unknown is never idle: such a worker counts as
//   loaded as the most loaded one that is known.

#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "core/clock.h"

namespace shoal::policy {

enum class WorkerRole : std::uint8_t { kBoth, kPrefill, kDecode };
const char* name_of(WorkerRole role);

// What a worker said last.
struct WorkerLoad {
  TimePoint at{};  // when it was heard
  std::int32_t running = 0;
  std::int32_t waiting = 0;
  std::int64_t uncached_tokens = 0;  // of prompts that wait or are being computed
  std::int64_t free_pages = 0;       // free or cached
};

struct WorkerView {
  std::uint64_t id = 0;    // never another worker's, unlike its place in the fleet
  std::uint64_t kind = 0;  // prefill and decode workers of one kind can hand over to each other
  WorkerRole role = WorkerRole::kBoth;
  bool available = false;  // takes requests: up, not draining, its breaker lets them pass
  std::optional<WorkerLoad> load;
  // Given to it by this gateway.
  double reserved_tokens = 0;        // uncached, of requests without their first token
  double reserved_since_report = 0;  // of these, what `load` cannot contain
  std::int32_t in_flight = 0;        // requests without their end
  std::int32_t in_flight_since_report = 0;
  double pages_since_report = 0;  // that requests given since will hold
  // From its card; 0: unknown.
  std::int64_t pages = 0;
  std::int32_t max_sequences = 0;
  // Learned from answers, tokens a second of prompts; 0: unknown.
  double prefill_rate = 0;
};

// A load this old says nothing any more: two heartbeats of 500 ms have been missed, and a third is late.
inline constexpr double kLoadSeconds = 2.0;

}  // namespace shoal::policy
