#include "layout/segments.h"

#include <algorithm>

namespace shoal {

namespace {
constexpr std::int64_t kBlock = 32;  // the quantisation block: no segment may cut one

std::vector<std::int64_t> ends_of(std::int64_t total, std::int64_t width) {
  std::vector<std::int64_t> ends;
  for (std::int64_t end = width; end < total; end += width) ends.push_back(end);
  ends.push_back(total);
  return ends;
}
}  // namespace

std::vector<std::int64_t> attention_segments(std::int32_t heads, std::int32_t head_dim, bool quantised) {
  const std::int64_t total = std::int64_t{heads} * head_dim;
  for (std::int32_t n = (heads + kMaxSegments - 1) / kMaxSegments; n < heads; ++n) {
    const std::int64_t width = std::int64_t{n} * head_dim;
    if (!quantised || width % kBlock == 0) return ends_of(total, width);
  }
  return {total};
}

std::vector<std::int64_t> feed_forward_segments(std::int64_t ffn) {
  const std::int64_t blocks = (ffn + kBlock - 1) / kBlock;
  const std::int64_t width = (blocks + kMaxSegments - 1) / kMaxSegments * kBlock;
  return ends_of(ffn, std::max(width, kBlock));
}

}  // namespace shoal
