// When to try again, and whom to leave alone for a while.
//
// Thread-safety: none of the classes; functions are pure. Time is passed in.

#pragma once

#include <chrono>
#include <cstdint>

#include "core/clock.h"

namespace shoal::policy {

struct BackoffOptions {
  std::chrono::milliseconds first{50};
  std::chrono::milliseconds longest{2000};
};
// Before attempt number `attempt` (1: the second in all): doubled each time, less a random part of up to
// half, so that those who failed together do not come back together. chance: any number.
std::chrono::milliseconds backoff(std::int32_t attempt, std::uint64_t chance,
                                  const BackoffOptions& options = {});

// Retries that a busy cluster can bear: a share of the requests, and a few a second where there are few.
// Without a bound, retries of what fails by overload make the overload.
class RetryBudget {
 public:
  explicit RetryBudget(double share = 0.2, double per_second = 5) : share_(share), per_second_(per_second) {}

  void request() { saved_ = saved_ + share_ < kMost ? saved_ + share_ : kMost; }
  // Takes one retry where there is one left.
  bool take(TimePoint now);

 private:
  static constexpr double kMost = 100;
  double share_;
  double per_second_;
  double saved_ = 10;
  TimePoint filled_{};
};

// Closed: requests pass. Open: none pass, for `open_seconds`. Then half open: one passes; it closes the
// breaker, or opens it again.
class Breaker {
 public:
  struct Options {
    std::int32_t failures = 5;  // in a row
    double open_seconds = 5;
  };
  enum class State : std::uint8_t { kClosed, kOpen, kHalfOpen };

  Breaker() = default;
  explicit Breaker(Options options) : options_(options) {}

  State state(TimePoint now) const;
  bool passes(TimePoint now) const;
  // A request was given to the worker.
  void sent(TimePoint now);
  void succeeded();
  void failed(TimePoint now);
  // Neither: its client left, or it was called off.
  void forgotten() { trial_ = false; }

 private:
  Options options_{};
  std::int32_t in_a_row_ = 0;
  bool open_ = false;
  bool trial_ = false;  // half open, and its one request is under way
  TimePoint trial_at_{};
  TimePoint opened_{};
};

}  // namespace shoal::policy
