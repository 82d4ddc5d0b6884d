// How much attention each coordinate has to do for a prompt, counted in blocks.
//
// Thread-safety: pure functions.

#pragma once

#include <cstdint>
#include <vector>

#include "layout/context_partition.h"

namespace shoal {

// Of each coordinate, in squares whose side is one of the 2 M blocks of a prompt that M coordinates share.
struct ContextWorkCounts {
  // Each block that any query sees counts as a whole: 3, 7, 11 in contiguous thirds, 7, 7, 7 zig-zag.
  std::vector<double> whole;
  // What is computed: on the diagonal a half.
  std::vector<double> exact;
  std::vector<double> kv_share;  // of the pages

  double most() const;  // of exact
};

ContextWorkCounts count_context_work(ContextPartition partition, std::int32_t coordinates,
                                     std::int32_t pages);

}  // namespace shoal
