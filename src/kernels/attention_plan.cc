#include "kernels/attention_plan.h"

#include <algorithm>
#include <cassert>
#include <limits>

namespace shoal::kernels {
namespace {

// A block is cut where it is more than this part of a thread's share, so that threads end together.
constexpr std::int64_t kPiecesPerThread = 4;

// Calls f(span, kv_head, first query head, query heads) for every KV head of every span.
template <typename F>
void for_heads(const AttentionShape& shape, std::span<const AttentionSpan> spans, F&& f) {
  for (const AttentionSpan& span : spans) {
    if (span.rows <= 0) continue;
    for (std::int32_t head = 0; head < shape.query_heads;) {
      const std::int32_t kv_head = shape.kv_head_of[static_cast<std::size_t>(head)];
      std::int32_t end = head + 1;
      while (end < shape.query_heads && shape.kv_head_of[static_cast<std::size_t>(end)] == kv_head) ++end;
      f(span, kv_head, head, end - head);
      head = end;
    }
  }
}

std::int64_t cost_of(const AttentionCut& cut, std::int32_t rows, std::int32_t pages) {
  return static_cast<std::int64_t>(std::max(rows, cut.rows_per_read)) * pages;
}

// Of rows [first, last] (positions) of a span.
std::int32_t first_page(const AttentionShape& shape, const AttentionSpan& span, std::int32_t first) {
  const std::int32_t seen = shape.window > 0 ? std::max(0, first - shape.window + 1) / kPageTokens : 0;
  return std::max(seen, span.page_begin);
}
// Not below first_page().
std::int32_t end_page(const AttentionShape& shape, const AttentionSpan& span, std::int32_t first,
                      std::int32_t last) {
  return std::max(first_page(shape, span, first), std::min(last / kPageTokens + 1, span.page_end));
}

std::int32_t segments(const AttentionCut& cut, std::int32_t page_begin, std::int32_t page_end) {
  return (page_end + cut.segment_pages - 1) / cut.segment_pages - page_begin / cut.segment_pages;
}

}  // namespace

void AttentionPlan::make(const AttentionShape& shape, std::span<const AttentionSpan> spans, int threads,
                         const AttentionCut& exact, const AttentionCut& chunked, std::int32_t chunked_from) {
  const AttentionCut cuts[2] = {exact, chunked};
  list_blocks(shape, spans, threads, cuts, chunked_from);
  cost_ = 0;
  for (const RowBlock& block : blocks_) {
    cost_ += cost_of(cuts[block.chunked ? 1 : 0], block.rows, block.page_end - block.page_begin);
  }
  const std::int64_t limit = threads == 1 ? std::numeric_limits<std::int64_t>::max()
                                          : std::max<std::int64_t>(1, cost_ / (threads * kPiecesPerThread));
  state_floats_ = 0;
  pieces_.clear();
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    cut_block(static_cast<std::int32_t>(i), cuts[blocks_[i].chunked ? 1 : 0], limit, shape.head_dim);
  }
  std::sort(pieces_.begin(), pieces_.end(), [](const AttentionPiece& a, const AttentionPiece& b) {
    if (a.cost != b.cost) return a.cost > b.cost;
    return a.block != b.block ? a.block < b.block : a.page_begin < b.page_begin;
  });
}

void AttentionPlan::list_blocks(const AttentionShape& shape, std::span<const AttentionSpan> spans,
                                int threads, const AttentionCut* cuts, std::int32_t chunked_from) {
  const auto is_chunked = [&](const AttentionSpan& span, std::int32_t group) {
    return static_cast<std::int64_t>(span.rows) * group >= chunked_from;
  };
  const auto pages = [&](const AttentionSpan& span) {
    return end_page(shape, span, span.start, span.start + span.rows - 1) -
           first_page(shape, span, span.start);
  };
  // Rows of a block such that none is more than a piece's fair part, down to each kind's least.
  std::int32_t block_rows[2] = {cuts[0].most_rows, cuts[1].most_rows};
  std::int64_t total = 0;
  for_heads(shape, spans, [&](const AttentionSpan& span, std::int32_t, std::int32_t, std::int32_t group) {
    total += cost_of(cuts[is_chunked(span, group) ? 1 : 0], span.rows * group, pages(span));
  });
  const std::int64_t limit = total / (threads * kPiecesPerThread);
  for (bool smaller = threads > 1; smaller;) {
    smaller = false;
    bool halve[2] = {false, false};
    for_heads(shape, spans, [&](const AttentionSpan& span, std::int32_t, std::int32_t, std::int32_t group) {
      const int kind = is_chunked(span, group) ? 1 : 0;
      const std::int32_t rows = std::min(block_rows[kind], span.rows * group);
      if (rows > cuts[kind].least_rows && cost_of(cuts[kind], rows, pages(span)) > limit) halve[kind] = true;
    });
    for (int kind = 0; kind < 2; ++kind) {
      if (!halve[kind]) continue;
      block_rows[kind] /= 2;
      smaller = true;
    }
  }

  blocks_.clear();
  for_heads(shape, spans,
            [&](const AttentionSpan& span, std::int32_t kv_head, std::int32_t head, std::int32_t group) {
              assert(std::ssize(span.slots) >=
                     std::min(span.page_end, (span.start + span.rows - 1) / kPageTokens + 1));
              RowBlock block;
              block.span = &span;
              block.chunked = is_chunked(span, group);
              block.kv_head = kv_head;
              block.first_head = head;
              block.group = group;
              const std::int32_t step = block_rows[block.chunked ? 1 : 0];
              for (std::int32_t row = 0; row < span.rows * group; row += step) {
                block.first_row = row;
                block.rows = std::min(step, span.rows * group - row);
                const std::int32_t first = span.start + row / group;
                const std::int32_t last = span.start + (row + block.rows - 1) / group;
                block.page_begin = first_page(shape, span, first);
                block.page_end = end_page(shape, span, first, last);
                blocks_.push_back(block);
              }
            });
}

void AttentionPlan::cut_block(std::int32_t index, const AttentionCut& cut, std::int64_t limit,
                              std::int32_t head_dim) {
  RowBlock& block = blocks_[static_cast<std::size_t>(index)];
  // One also where it has no pages: its rows have seen nothing.
  const std::int32_t count = std::max(1, segments(cut, block.page_begin, block.page_end));
  const std::int64_t cost = cost_of(cut, block.rows, block.page_end - block.page_begin);
  std::int32_t step = count;
  if (cost > limit) step = static_cast<std::int32_t>(std::max<std::int64_t>(1, count * limit / cost));
  const std::int32_t first_segment = block.page_begin / cut.segment_pages;
  std::int32_t pieces = 0;
  for (std::int32_t s = 0; s < count; s += step, ++pieces) {
    AttentionPiece piece;
    piece.block = index;
    piece.page_begin = std::max(block.page_begin, (first_segment + s) * cut.segment_pages);
    piece.page_end = std::min(block.page_end, (first_segment + s + step) * cut.segment_pages);
    piece.state = cut.state_per_segment ? s : pieces;
    piece.cost = cost_of(cut, block.rows, piece.page_end - piece.page_begin);
    pieces_.push_back(piece);
  }
  if (pieces == 1) return;
  block.states = cut.state_per_segment ? count : pieces;
  block.first_state = state_floats_;
  state_floats_ += static_cast<std::size_t>(block.states) * state_floats(block.rows, head_dim);
}

}  // namespace shoal::kernels
