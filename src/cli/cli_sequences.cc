#include "cli/cli_sequences.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace shoal::cli {

Status Sequences::reset(std::int32_t count, std::int64_t tokens) {
  const std::int32_t context = model_.description().context_length;
  if (tokens > context) {
    return {ErrorCode::kTooLong, fmt::format("{} tokens, but the model's context holds {}", tokens, context)};
  }
  const std::int64_t pages = (tokens + kPageTokens - 1) / kPageTokens;
  const std::int64_t slots = pages * count;
  if (slots > INT32_MAX) return {ErrorCode::kExhausted, fmt::format("{} KV pages are too many", slots)};
  lengths_.assign(static_cast<std::size_t>(count), 0);
  const bool enough = !pools_.empty() && slots <= pools_.front().layout.slots;
  pages_each_ = pages;
  slots_.resize(static_cast<std::size_t>(slots));
  std::iota(slots_.begin(), slots_.end(), 0);
  if (enough) return {};

  pools_.clear();
  buffers_.clear();
  for (const KvGroup& group : model_.kv_groups()) {
    KvLayout layout = model_.pool_layout(group.id, dtype_);
    layout.slots = static_cast<std::int32_t>(slots);
    SHOAL_ASSIGN(buffer, Buffer::allocate(layout.pool_bytes(), "KV pool"));
    pools_.push_back({buffer.data(), layout});
    buffers_.push_back(std::move(buffer));
  }
  return {};
}

std::int64_t Sequences::kv_bytes_read(std::int64_t context) const {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < pools_.size(); ++i) {
    const std::int64_t window = model_.kv_groups()[i].window;
    const std::int64_t tokens = window > 0 ? std::min(context + 1, window) : context + 1;
    bytes += tokens * static_cast<std::int64_t>(pools_[i].layout.page_bytes()) / kPageTokens;
  }
  return bytes;
}

void Sequences::run(std::span<const SequenceWork> work, MatrixView<float> logits) {
  batch_.tokens.clear();
  batch_.positions.clear();
  batch_.spans.clear();
  batch_.logit_rows.clear();
  for (const SequenceWork& item : work) {
    std::int32_t& length = lengths_[static_cast<std::size_t>(item.sequence)];
    model::BatchSpan span;
    span.first_row = static_cast<std::int32_t>(batch_.rows());
    span.rows = static_cast<std::int32_t>(item.tokens.size());
    span.start = length;
    const auto pages = std::span<const std::int32_t>(slots_).subspan(
        static_cast<std::size_t>(item.sequence * pages_each_), static_cast<std::size_t>(pages_each_));
    span.slots.assign(pools_.size(), pages);
    batch_.tokens.insert(batch_.tokens.end(), item.tokens.begin(), item.tokens.end());
    for (std::int32_t i = 0; i < span.rows; ++i) {
      batch_.positions.push_back(length + i);
      const bool wanted =
          item.logits == LogitsOf::kAll || (item.logits == LogitsOf::kLast && i + 1 == span.rows);
      if (wanted) batch_.logit_rows.push_back(span.first_row + i);
    }
    length += span.rows;
    batch_.spans.push_back(std::move(span));
  }
  model_.forward(batch_, pools_, logits);
}

}  // namespace shoal::cli
