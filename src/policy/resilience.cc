#include "policy/resilience.h"

#include <algorithm>

namespace shoal::policy {

namespace {
// A trial that is never heard of again stands in the way no longer than this.
constexpr double kTrialSeconds = 30;
}  // namespace

std::chrono::milliseconds backoff(std::int32_t attempt, std::uint64_t chance, const BackoffOptions& options) {
  const std::int32_t doublings = std::clamp(attempt - 1, 0, 20);
  const std::int64_t whole =
      std::min<std::int64_t>(options.first.count() << doublings, options.longest.count());
  return std::chrono::milliseconds(whole - static_cast<std::int64_t>(chance % 1024) * whole / 2048);
}

bool RetryBudget::take(TimePoint now) {
  if (filled_ != TimePoint{}) saved_ = std::min(kMost, saved_ + per_second_ * seconds_between(filled_, now));
  filled_ = now;
  if (saved_ < 1) return false;
  saved_ -= 1;
  return true;
}

Breaker::State Breaker::state(TimePoint now) const {
  if (!open_) return State::kClosed;
  return seconds_between(opened_, now) < options_.open_seconds ? State::kOpen : State::kHalfOpen;
}

bool Breaker::passes(TimePoint now) const {
  switch (state(now)) {
    case State::kClosed:
      return true;
    case State::kOpen:
      return false;
    case State::kHalfOpen:
      return !trial_ || seconds_between(trial_at_, now) > kTrialSeconds;
  }
  return false;
}

void Breaker::sent(TimePoint now) {
  if (state(now) != State::kHalfOpen) return;
  trial_ = true;
  trial_at_ = now;
}

void Breaker::succeeded() {
  in_a_row_ = 0;
  open_ = false;
  trial_ = false;
}

void Breaker::failed(TimePoint now) {
  if (state(now) == State::kHalfOpen || ++in_a_row_ >= options_.failures) {
    open_ = true;
    opened_ = now;
    in_a_row_ = 0;
  }
  trial_ = false;
}

}  // namespace shoal::policy
