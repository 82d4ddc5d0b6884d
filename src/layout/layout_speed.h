// Whether a layout decodes faster than one of its ranks alone would, by arithmetic: a warning at start, no
// prediction.
//
// Thread-safety: pure functions.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layout/layout.h"

namespace shoal {

struct LayoutFacts {
  Degrees degrees;
  std::vector<std::int32_t> tp_split;  // empty: even
  std::vector<double> stage_bytes;     // of weights that a token reads, of each stage
  std::int32_t sums = 0;               // over the tensor ranks, for a token, in all stages
  double sum_seconds = 0;              // one of them, with what it waits
  std::int32_t threads = 1;            // of each rank
  std::int32_t cores = 1;              // of the host that holds all ranks
};

// Why not, in one sentence; nothing where it is faster.
std::optional<std::string> why_slower_than_one_rank(const LayoutFacts& facts);

}  // namespace shoal
