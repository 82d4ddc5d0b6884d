// Which part of the model a tensor-parallel rank holds: query heads, feed-forward columns, vocabulary rows.
//
// Thread-safety: pure functions.
// Invariants:
//   1. A rank holds a run of whole K segments (layout/segments.h): the runs of all ranks, in rank order, are
//      the model's segments in order, so partial sums add up the same way in every layout.
//   2. A rank holds every KV head its queries read; a KV head may be on several ranks.
//   3. With one rank the shard is the whole.
// Errors: kInvalidArgument where a degree is above the number of segments, or asked-for shares fall between
//   two borders of the attention's segments, naming the nearest that works.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/expected.h"

namespace shoal::parallel {

// Half open.
struct IndexRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  bool empty() const { return end <= begin; }
  friend bool operator==(const IndexRange&, const IndexRange&) = default;
};

// A rank's place in its tensor-parallel group.
struct Place {
  std::int32_t ranks = 1;
  std::int32_t index = 0;
  // Shares of the ranks, at least 1 each; empty: all alike. Query heads are dealt exactly so, what has finer
  // borders (feed-forward columns, vocabulary) as nearly as those allow.
  std::span<const std::int32_t> split = {};
};

// Fails with kInvalidArgument where a split is not one share of at least 1 for each rank.
Status check_split(std::span<const std::int32_t> split, std::int32_t ranks);

struct HeadCounts {
  std::int32_t query = 0;
  std::int32_t kv = 0;
  std::int32_t head_dim = 0;
};

struct AttentionShard {
  IndexRange query_heads;
  IndexRange kv_heads;
  // For each of this rank's query heads, the index among this rank's KV heads of the one it reads.
  std::vector<std::int32_t> kv_head_of;
  // Ends of this rank's K segments of the output projection, counted from its own first column.
  std::vector<std::int64_t> segment_ends;
  // Index of the first of them in the model.
  std::int32_t first_segment = 0;
};

// quantised: whether any layer's output projection is: heads are dealt alike in all layers.
Expected<AttentionShard> attention_shard(HeadCounts heads, bool quantised, Place place);

struct FeedForwardShard {
  IndexRange columns;
  std::vector<std::int64_t> segment_ends;
  std::int32_t first_segment = 0;
};

Expected<FeedForwardShard> feed_forward_shard(std::int64_t width, Place place);

// Rows of the embedding and of the LM head: whole vocabulary segments (kernels/sampling_math.h). Empty for
// the last ranks where there are fewer segments than ranks.
IndexRange vocabulary_shard(std::int64_t vocabulary, Place place);
// Where every rank's part of the vocabulary ends.
std::vector<std::int64_t> vocabulary_ends(std::int64_t vocabulary, std::int32_t ranks,
                                          std::span<const std::int32_t> split);

}  // namespace shoal::parallel
