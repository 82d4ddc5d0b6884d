// Sums over a group of ranks that see the same memory.
//
// Thread-safety: belongs to the rank's executor thread; it uses the compute threads it was made with.
// Invariants: every rank of the group holds the same bits afterwards: parts are added in rank order, those of
//   one rank in the order given.

#pragma once

#include <cstdint>
#include <span>

#include "core/clock.h"
#include "core/expected.h"

namespace shoal::comm {

class SharedSum {
 public:
  virtual ~SharedSum() = default;

  // parts: how many each rank of the group brings, by its index, at least 1 each; mine: this rank's, each of
  // n values. out: n values; it may be one of mine. Where every rank brings one part, in its arena, and wants
  // the sum there, nothing is copied.
  virtual Status sum(std::span<const std::int32_t> parts, std::span<const float* const> mine, std::int64_t n,
                     float* out, TimePoint deadline) = 0;
};

}  // namespace shoal::comm
