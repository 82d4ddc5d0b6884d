#include "parallel/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "kernels/sampling_math.h"
#include "layout/segments.h"

namespace shoal::parallel {

namespace {

// Where the part of the first `ranks` ranks ends, to the nearest.
std::int64_t border(std::int64_t count, Place place, std::int32_t ranks) {
  if (place.split.empty()) return count * ranks / place.ranks;
  const auto sum = [&](std::int32_t n) {
    return std::accumulate(place.split.begin(), place.split.begin() + n, std::int64_t{0});
  };
  const std::int64_t total = sum(place.ranks);
  return (2 * count * sum(ranks) + total) / (2 * total);
}

// The run of `count` things that a place gets: where nothing else is asked for, sizes differ by at most one.
IndexRange deal(std::int64_t count, Place place) {
  return {border(count, place, place.index), border(count, place, place.index + 1)};
}

// A split as near to the one asked for as whole segments come, every rank with one at least.
std::vector<std::int64_t> nearest_split(std::int64_t segments, Place place) {
  std::vector<std::int64_t> shares;
  std::int64_t begin = 0, common = 0;
  for (std::int32_t rank = 0; rank < place.ranks; ++rank) {
    const std::int64_t left = place.ranks - rank - 1;
    const std::int64_t end =
        left == 0 ? segments : std::clamp(border(segments, place, rank + 1), begin + 1, segments - left);
    shares.push_back(end - begin);
    common = std::gcd(common, end - begin);
    begin = end;
  }
  for (std::int64_t& share : shares) share /= common;
  return shares;
}

bool falls_on_borders(std::int64_t segments, Place place) {
  const std::int64_t total = std::accumulate(place.split.begin(), place.split.end(), std::int64_t{0});
  return std::all_of(place.split.begin(), place.split.end(),
                     [&](std::int64_t share) { return segments * share % total == 0; });
}

Status refuse_split(const std::vector<std::int64_t>& ends, Place place, const char* what) {
  const auto segments = static_cast<std::int64_t>(ends.size());
  return {ErrorCode::kInvalidArgument,
          fmt::format("--tp-split {}: the {} has {} parts, which cannot be dealt so; the nearest is {}",
                      fmt::join(place.split, ","), what, segments,
                      fmt::join(nearest_split(segments, place), ","))};
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

Status check_split(std::span<const std::int32_t> split, std::int32_t ranks) {
  const bool each =
      std::all_of(split.begin(), split.end(), [](std::int32_t n) { return n > 0 && n < 65536; });
  if (split.empty() || (each && split.size() == static_cast<std::size_t>(ranks))) return {};
  return {ErrorCode::kInvalidArgument,
          fmt::format("--tp-split {}: with --tp {} it takes {} shares of at least 1", fmt::join(split, ","),
                      ranks, ranks)};
}

Expected<AttentionShard> attention_shard(HeadCounts heads, bool quantised, Place place) {
  if (heads.query < 1 || heads.kv < 1 || heads.head_dim < 1 || heads.query % heads.kv != 0) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("attention: {} query heads cannot share {} KV heads of {} dimensions",
                              heads.query, heads.kv, heads.head_dim));
  }
  const auto ends = attention_segments(heads.query, heads.head_dim, quantised);
  if (!place.split.empty() && place.ranks <= static_cast<std::int32_t>(ends.size()) &&
      !falls_on_borders(static_cast<std::int64_t>(ends.size()), place))
    return refuse_split(ends, place, "attention output");
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
  if (segments.empty()) return refuse_split(ends, place, "feed-forward width");
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

std::vector<std::int64_t> vocabulary_ends(std::int64_t vocabulary, std::int32_t ranks,
                                          std::span<const std::int32_t> split) {
  std::vector<std::int64_t> ends;
  for (std::int32_t rank = 0; rank < ranks; ++rank)
    ends.push_back(vocabulary_shard(vocabulary, {ranks, rank, split}).end);
  return ends;
}

}  // namespace shoal::parallel
