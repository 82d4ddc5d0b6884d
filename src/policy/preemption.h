// Who gives way when a decode needs a page and none is left.
//
// Thread-safety: pure functions.

#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace shoal::policy {

struct PreemptionCandidate {
  std::uint64_t arrival = 0;  // order in which sequences came; larger is younger
  bool holds_pages = false;   // without pages there is nothing to win
  bool leaving = false;       // finished or preempted already: its pages come back anyway
};

// The youngest that holds pages: the oldest always gets through, so preemption cannot go round in circles.
// Nothing where nobody qualifies, or where someone is already leaving: its pages are as good, and taking more
// at once would only mean more to compute again.
std::optional<std::size_t> choose_victim(std::span<const PreemptionCandidate> candidates);

}  // namespace shoal::policy
