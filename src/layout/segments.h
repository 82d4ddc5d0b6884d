// The segments of K that row-parallel products are summed over: they belong to the model, not to the layout,
// so that every layout adds the same numbers in the same order.
//
// Thread-safety: pure functions.
// Invariants: at most kMaxSegments segments; ends ascend and the last is the whole width. A TP rank holds a
//   run of whole segments.

#pragma once

#include <cstdint>
#include <vector>

#include "core/expected.h"

namespace shoal {

inline constexpr std::int32_t kMaxSegments = 16;

// Ends of the segments of the attention output (width heads * head_dim): the least number of whole query
// heads per segment that gives at most 16 segments and, for quantised weights, widths that are multiples
// of 32. Where no number of heads gives a multiple of 32, one segment.
std::vector<std::int64_t> attention_segments(std::int32_t heads, std::int32_t head_dim, bool quantised);

// Ends of the segments of the feed-forward width: equal widths, multiples of 32, with a short last one.
std::vector<std::int64_t> feed_forward_segments(std::int64_t ffn);

}  // namespace shoal
