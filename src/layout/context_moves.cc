#include "layout/context_moves.h"

#include <algorithm>

namespace shoal {
namespace {

// Calls f(page, owner) for the pages of a span that are attended to.
template <typename F>
void each_visible(const ContextSpan& span, std::int32_t window, F&& f) {
  for (std::int32_t page = first_visible_page(span.start, window); page < span.end_page(); ++page)
    f(page, span.owners[static_cast<std::size_t>(page)]);
}

std::int64_t count_pieces(const ContextSpan& span, std::int32_t owner, std::int32_t window,
                          std::vector<PagePiece>& scratch) {
  scratch.clear();
  pieces_of(span, owner, window, scratch);
  return std::ssize(scratch);
}

}  // namespace

void ContextMoves::add_pages(std::int32_t from, std::int32_t to, std::int32_t own, std::int32_t slot) {
  const auto at = static_cast<std::size_t>(slot);
  if (to == own) {
    std::vector<Mark>& marks = in_marks_[static_cast<std::size_t>(from)];
    if (marks.size() <= at) marks.resize(at + 1);
    if (marks[at].stamp == stamp_) return;
    std::vector<std::int32_t>& in = exchanges_[static_cast<std::size_t>(from)].pages_in;
    marks[at] = {stamp_, static_cast<std::int32_t>(in.size())};
    in.push_back(slot);
  } else if (from == own) {
    std::vector<std::uint32_t>& marks = out_marks_[static_cast<std::size_t>(to)];
    if (marks.size() <= at) marks.resize(at + 1);
    if (marks[at] == stamp_) return;
    marks[at] = stamp_;
    exchanges_[static_cast<std::size_t>(to)].pages_out.push_back(slot);
  }
}

void ContextMoves::make(const ContextWork& work, ContextTraffic traffic, std::int32_t own,
                        std::int32_t window, bool pieces) {
  const std::size_t coordinates = work.size();
  exchanges_.resize(coordinates);
  in_marks_.resize(coordinates);
  out_marks_.resize(coordinates);
  own_ = own;
  ++stamp_;
  for (ContextExchange& each : exchanges_) {
    each.pages_out.clear();
    each.pages_in.clear();
    each.queries_out.clear();
    each.queries_in.clear();
    each.query_rows_out = each.query_rows_in = 0;
    each.state_rows_out = each.state_rows_in = 0;
  }
  any_ = false;
  std::vector<PagePiece> scratch;
  std::vector<char> owns(coordinates);
  for (std::size_t c = 0; c < coordinates; ++c) {
    const auto at = static_cast<std::int32_t>(c);
    for (std::size_t i = 0; i < work[c].size(); ++i) {
      const ContextSpan& span = work[c][i];
      if (traffic_of(span) != traffic) continue;
      const auto index = static_cast<std::int32_t>(i);
      if (!passes_queries(span, window)) {
        each_visible(span, window, [&](std::int32_t page, std::int32_t owner) {
          if (owner == at || (at != own && owner != own)) return;
          any_ = true;
          add_pages(owner, at, own, span.slots[static_cast<std::size_t>(page)]);
        });
        continue;
      }
      std::ranges::fill(owns, 0);
      each_visible(span, window,
                   [&](std::int32_t, std::int32_t owner) { owns[static_cast<std::size_t>(owner)] = 1; });
      for (std::size_t o = 0; o < coordinates; ++o) {
        const auto owner = static_cast<std::int32_t>(o);
        if (owns[o] == 0 || owner == at || (at != own && owner != own)) continue;
        any_ = true;
        const std::int64_t states = span.rows * (pieces ? count_pieces(span, owner, window, scratch) : 1);
        if (at == own) {
          ContextExchange& with = exchanges_[o];
          with.queries_out.push_back(index);
          with.query_rows_out += span.rows;
          with.state_rows_in += states;
        } else {
          ContextExchange& with = exchanges_[c];
          with.queries_in.push_back(index);
          with.query_rows_in += span.rows;
          with.state_rows_out += states;
        }
      }
    }
  }
}

std::int32_t ContextMoves::arrival(std::int32_t owner, std::int32_t slot) const {
  const std::vector<Mark>& marks = in_marks_[static_cast<std::size_t>(owner)];
  const auto at = static_cast<std::size_t>(slot);
  return at < marks.size() && marks[at].stamp == stamp_ ? marks[at].index : -1;
}

bool crosses(const ContextSpan& span, std::int32_t coordinate) {
  // A page behind a window has no owner.
  return std::ranges::any_of(span.owners.first(static_cast<std::size_t>(span.end_page())),
                             [&](std::int32_t owner) { return owner >= 0 && owner != coordinate; });
}

void pieces_of(const ContextSpan& span, std::int32_t owner, std::int32_t window,
               std::vector<PagePiece>& out) {
  const std::int32_t first = first_visible_page(span.start, window);
  bool prefix = false;  // whether all of the segment so far is one run of this owner's
  each_visible(span, window, [&](std::int32_t page, std::int32_t held_by) {
    const bool begins = page == first || page % kSegmentPages == 0;
    if (held_by != owner) {
      prefix = false;
      return;
    }
    if (begins) prefix = true;
    if (!begins && prefix) {
      out.back().end = page + 1;
    } else {
      out.push_back({page, page + 1});
    }
  });
}

}  // namespace shoal
