// What the engine measures about itself: histograms of request times, and how busy the executor is.
//
// Thread-safety: none; the engine thread owns them and publishes copies.
// Invariants: a histogram's counts are per bucket, not cumulative; count() is their sum.

#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "core/clock.h"

namespace shoal::engine {

class Histogram {
 public:
  // Upper bounds in seconds; a last bucket takes what is longer. From 1 ms, a token of a tiny model, to 10
  // minutes, a long queue.
  static constexpr std::array<double, 20> kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075,
                                                     0.1,   0.15,   0.2,   0.3,  0.5,   1,    2.5,
                                                     5,     10,     30,    60,   300,   600};
  static constexpr std::size_t kBuckets = kBounds.size() + 1;

  void add(double seconds);
  std::span<const std::uint64_t> buckets() const { return buckets_; }
  std::uint64_t count() const { return count_; }
  double sum() const { return sum_; }

 private:
  std::array<std::uint64_t, kBuckets> buckets_{};
  std::uint64_t count_ = 0;
  double sum_ = 0;
};

struct EngineHistograms {
  Histogram queue_time;           // arrival to admission
  Histogram prefill_time;         // admission to first token
  Histogram time_to_first_token;  // arrival to first token
  Histogram inter_token_latency;  // between tokens of one choice
  Histogram e2e_latency;          // arrival to last event
};

// Share of the last 10 seconds that passes took.
class BusyMeter {
 public:
  // A pass of this many seconds ended at `now`.
  void add(TimePoint now, double seconds);
  double ratio(TimePoint now) const;

 private:
  static constexpr std::int64_t kSlots = 10;  // of one second each

  struct Slot {
    std::int64_t second = -kSlots;
    double busy = 0;
  };
  std::array<Slot, kSlots> slots_{};
};

}  // namespace shoal::engine
