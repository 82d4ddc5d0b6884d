#include "parallel/shard.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/sampling_math.h"
#include "layout/segments.h"

namespace shoal::parallel {

namespace {

// The run of `count` things that a place gets: sizes differ by at most one.
IndexRange deal(std::int64_t count, Place place) {
  return {count * place.index / place.ranks, count * (place.index + 1) / place.ranks};
}

Expected<IndexRange> deal_segments(const std::vector<std::int64_t>& ends, Place place, const char* what) {
  const auto segments = static_cast<std::int64_t>(ends.size());
  if (place.ranks > segments) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("tp {}: the {} can be cut into {} parts only; the nearest degree is tp {}",
                              place.ranks, what, segments, segments));
  }
  return deal(segments, place);
}

IndexRange columns_of(const std::vector<std::int64_t>& ends, IndexRange segments) {
  const auto at = [&](std::int64_t i) { return i == 0 ? 0 : ends[static_cast<std::size_t>(i - 1)]; };
  return {at(segments.begin), at(segments.end)};
}

std::vector<std::int64_t> local_ends(const std::vector<std::int64_t>& ends, IndexRange segments,
                                     std::int64_t first_column) {
  std::vector<std::int64_t> local;
  for (std::int64_t i = segments.begin; i < segments.end; ++i) {
    local.push_back(ends[static_cast<std::size_t>(i)] - first_column);
  }
  return local;
}

}  // namespace

Expected<AttentionShard> attention_shard(HeadCounts heads, bool quantised, Place place) {
  if (heads.query < 1 || heads.kv < 1 || heads.head_dim < 1 || heads.query % heads.kv != 0) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("attention: {} query heads cannot share {} KV heads of {} dimensions",
                              heads.query, heads.kv, heads.head_dim));
  }
  const auto ends = attention_segments(heads.query, heads.head_dim, quantised);
  SHOAL_ASSIGN(segments, deal_segments(ends, place, "attention output"));
  const IndexRange columns = columns_of(ends, segments);

  AttentionShard shard;
  shard.first_segment = static_cast<std::int32_t>(segments.begin);
  shard.segment_ends = local_ends(ends, segments, columns.begin);
  shard.query_heads = {columns.begin / heads.head_dim, columns.end / heads.head_dim};
  const std::int64_t queries_per_kv = heads.query / heads.kv;
  shard.kv_heads = {shard.query_heads.begin / queries_per_kv,
                    (shard.query_heads.end - 1) / queries_per_kv + 1};
  for (std::int64_t head = shard.query_heads.begin; head < shard.query_heads.end; ++head) {
    shard.kv_head_of.push_back(static_cast<std::int32_t>(head / queries_per_kv - shard.kv_heads.begin));
  }
  return shard;
}

Expected<FeedForwardShard> feed_forward_shard(std::int64_t width, Place place) {
  if (width < 1) return Status(ErrorCode::kInvalidArgument, "feed-forward: the width is zero");
  const auto ends = feed_forward_segments(width);
  SHOAL_ASSIGN(segments, deal_segments(ends, place, "feed-forward width"));
  FeedForwardShard shard;
  shard.columns = columns_of(ends, segments);
  shard.segment_ends = local_ends(ends, segments, shard.columns.begin);
  shard.first_segment = static_cast<std::int32_t>(segments.begin);
  return shard;
}

IndexRange vocabulary_shard(std::int64_t vocabulary, Place place) {
  constexpr std::int64_t kSegment = kernels::kVocabularySegment;
  const IndexRange segments = deal((vocabulary + kSegment - 1) / kSegment, place);
  return {std::min(segments.begin * kSegment, vocabulary), std::min(segments.end * kSegment, vocabulary)};
}

}  // namespace shoal::parallel
