// How much attention each coordinate has to do for a prompt, counted in blocks, and how long a prompt must be
// to hide what travels behind it.
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

// Of one rank.
struct RingSpeeds {
  std::int32_t query_heads = 0;
  std::int32_t kv_heads = 0;
  std::int64_t kv_value_bytes = 2;
  double attention_flops = 0;  // a second; 4 * head_dim for each query head and key
  double link_bytes = 0;       // a second
};

// From how many tokens on a prompt, computed in one step from its beginning and dealt zig-zag to M
// coordinates, attends to what is here for longer than a neighbour's pages travel. With N tokens, heads of D
// values: in each ring step N / M tokens come, 2 h_kv D b bytes each; meanwhile a coordinate attends with N /
// M tokens to as many, half of which the mask hides: N^2 / M^2 * 2 h_q D flops.
double ring_hidden_from(const RingSpeeds& speeds, std::int32_t coordinates);

}  // namespace shoal
