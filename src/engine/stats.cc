#include "engine/stats.h"

#include <algorithm>

namespace shoal::engine {
namespace {

std::int64_t second_of(TimePoint time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
}

}  // namespace

void Histogram::add(double seconds) {
  const auto bucket = std::ranges::lower_bound(kBounds, seconds) - kBounds.begin();
  ++buckets_[static_cast<std::size_t>(bucket)];
  ++count_;
  sum_ += seconds;
}

void BusyMeter::add(TimePoint now, double seconds) {
  // A pass longer than a second belongs to the seconds before it, too.
  std::int64_t second = second_of(now);
  double left = std::min(seconds, static_cast<double>(kSlots));
  for (std::int64_t i = 0; i < kSlots && left > 0; ++i, --second) {
    if (second < 0) break;
    Slot& slot = slots_[static_cast<std::size_t>(second % kSlots)];
    if (slot.second != second) slot = {second, 0};
    const double part = std::min(left, std::max(0.0, 1 - slot.busy));
    slot.busy += part;
    left -= part;
  }
}

double BusyMeter::ratio(TimePoint now) const {
  const std::int64_t second = second_of(now);
  double busy = 0;
  for (const Slot& slot : slots_) {
    if (slot.second > second - kSlots && slot.second <= second) busy += slot.busy;
  }
  return std::min(1.0, busy / static_cast<double>(kSlots));
}

}  // namespace shoal::engine
