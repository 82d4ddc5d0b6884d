#include "policy/preemption.h"

namespace shoal::policy {

std::optional<std::size_t> choose_victim(std::span<const PreemptionCandidate> candidates) {
  std::optional<std::size_t> victim;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const PreemptionCandidate& candidate = candidates[i];
    if (!candidate.holds_pages) continue;
    if (candidate.leaving) return std::nullopt;
    if (!victim || candidate.arrival > candidates[*victim].arrival) victim = i;
  }
  return victim;
}

}  // namespace shoal::policy
