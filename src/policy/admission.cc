#include "policy/admission.h"

#include <algorithm>

namespace shoal::policy {

void OutputLengths::add(std::int32_t length) {
  if (recent_.size() < kKept) {
    recent_.push_back(length);
  } else {
    sorted_.erase(std::ranges::lower_bound(sorted_, recent_[next_]));
    recent_[next_] = length;
    next_ = (next_ + 1) % kKept;
  }
  sorted_.insert(std::ranges::upper_bound(sorted_, length), length);
}

std::int32_t OutputLengths::expect(std::int32_t generated, std::int32_t max_tokens) const {
  if (generated >= max_tokens) return max_tokens;
  const auto longer = std::ranges::upper_bound(sorted_, generated);
  const auto known = sorted_.end() - longer;
  if (known < 8) return generated + (max_tokens - generated + 1) / 2;
  return std::min(max_tokens, *(longer + (known - 1) * 3 / 4));
}

bool admits(const AdmissionInput& input) {
  if (input.running >= input.max_running) return false;
  if (input.running == 0) return true;
  return std::ranges::all_of(
      input.pools, [](const PoolDemand& pool) { return pool.needed + pool.promised <= pool.available; });
}

}  // namespace shoal::policy
