// What the work of one KV group comes to, for ContextAttention: which spans are attended to where, and how
// results are put together.

#include <algorithm>
#include <tuple>

#include "parallel/context_attention.h"

namespace shoal::parallel {

using kernels::AttentionSpan;

std::vector<std::int32_t>& ContextAttention::Plan::next_table() {
  if (tables_used_ == tables_.size()) tables_.emplace_back();
  std::vector<std::int32_t>& table = tables_[tables_used_++];
  table.clear();
  return table;
}

void ContextAttention::Plan::make(const ContextWork& work, std::int32_t own, std::int32_t window,
                                  bool strict) {
  work_ = &work;
  own_ = own;
  window_ = window;
  // Behind a window runs of pages keep their places: what a row sees of them begins somewhere, too.
  pieces_ = strict || window > 0;
  direct_.clear();
  late_.clear();
  splits_.clear();
  split_own_.clear();
  split_landed_.resize(work.size());
  for (auto& landed : split_landed_) landed.clear();
  split_rows_ = 0;
  own_states_.clear();
  own_state_rows_ = 0;
  masked_.clear();
  masked_rows_ = 0;
  tables_used_ = 0;
  landed_.clear();
  for (const ContextTraffic traffic : kContextTraffics)
    moves_[traffic_index(traffic)].make(work, traffic, own, window, pieces_);
  const auto mine = static_cast<std::size_t>(own);
  for (const ContextSpan& span : work[mine]) {
    if (!passes_queries(span, window)) add_direct(span);
  }
  for (const ContextTraffic traffic : kContextTraffics) {
    const std::size_t t = traffic_index(traffic);
    foreign_[t].resize(work.size());
    queries_out_[t].resize(work.size());
    for (std::size_t c = 0; c < work.size(); ++c) {
      foreign_[t][c].clear();
      std::int32_t row = 0;
      std::int64_t states = 0;
      for (const std::int32_t index : moves_[t].exchanges()[c].queries_in) {
        const ContextSpan& span = work[c][static_cast<std::size_t>(index)];
        add_states(span, row, foreign_[t][c], states);
        row += span.rows;
      }
    }
    // kRing first: behind its spans come those of decoded tokens.
    if (traffic == ContextTraffic::kMerge) own_decoded_ = own_states_.size();
    add_folds(work, traffic);
  }
}

// Its table names pages here, and those that land, by slot.
void ContextAttention::Plan::add_direct(const ContextSpan& span) {
  if (splits(span)) return add_split(span);
  AttentionSpan direct{
      .first_row = span.first_row, .rows = span.rows, .start = span.start, .slots = span.slots};
  const ContextMoves& moves = moves_[traffic_index(ContextTraffic::kRing)];
  std::vector<std::int32_t>* table = nullptr;
  for (std::int32_t page = first_visible_page(span.start, window_); page < span.end_page(); ++page) {
    const auto at = static_cast<std::size_t>(page);
    if (span.owners[at] == own_) continue;
    if (table == nullptr) {
      table = &next_table();
      table->assign(span.slots.begin(), span.slots.begin() + span.end_page());
    }
    landed_.push_back(
        {tables_used_ - 1, at, span.owners[at], moves.arrival(span.owners[at], span.slots[at])});
  }
  if (table != nullptr) direct.slots = *table;
  (table != nullptr ? late_ : direct_).push_back(direct);
  if (span.masked_pages > 0) add_masked(span, direct);
}

// From behind all pages each token of those that the mask hides is in sight. What comes of it goes nowhere.
void ContextAttention::Plan::add_masked(const ContextSpan& span, AttentionSpan masked) {
  masked.page_begin = span.last_page() + 1;
  masked.page_end = span.end_page();
  masked.start = masked.page_end * kPageTokens;
  masked.state_row = static_cast<std::int32_t>(masked_rows_);
  masked_.push_back(masked);
  masked_rows_ += span.rows;
}

// Where results need not be folded by position, and what others hold lies wholly before the span.
bool ContextAttention::Plan::splits(const ContextSpan& span) const {
  if (pieces_ || span.masked_pages > 0) return false;
  const auto first = span.owners.begin() + span.start / kPageTokens;
  const auto foreign = [&](std::int32_t owner) { return owner != own_; };
  return std::ranges::none_of(first, span.owners.begin() + span.end_page(), foreign) &&
         std::ranges::any_of(span.owners.begin(), first, foreign);
}

// Each coordinate's pages side by side, as in add_states().
void ContextAttention::Plan::add_split(const ContextSpan& span) {
  splits_.push_back({span.first_row, span.rows, split_rows_});
  const auto first_state = static_cast<std::int32_t>(split_rows_);
  add_states(span, span.first_row, split_own_, split_rows_);
  const ContextMoves& moves = moves_[traffic_index(ContextTraffic::kRing)];
  const std::int32_t pages = span.start / kPageTokens;
  for (std::size_t c = 0; c < split_landed_.size(); ++c) {
    const auto owner = static_cast<std::int32_t>(c);
    const auto seen = span.owners.first(static_cast<std::size_t>(pages));
    if (owner == own_ || std::ranges::find(seen, owner) == seen.end()) continue;
    std::vector<std::int32_t>& table = next_table();
    for (std::int32_t page = 0; page < pages; ++page) {
      const auto at = static_cast<std::size_t>(page);
      if (span.owners[at] != owner) continue;
      landed_.push_back({tables_used_ - 1, table.size(), owner, moves.arrival(owner, span.slots[at])});
      table.push_back(0);
    }
    AttentionSpan landed{.first_row = span.first_row, .rows = span.rows, .slots = table};
    // Behind all of them.
    landed.start = static_cast<std::int32_t>(std::ssize(table)) * kPageTokens;
    landed.page_end = static_cast<std::int32_t>(std::ssize(table));
    landed.state_row = first_state;
    split_landed_[c].push_back(landed);
  }
}

// What this coordinate's pages say to a span's queries, which lie from first_row on: one state for each
// piece, or one in all.
void ContextAttention::Plan::add_states(const ContextSpan& span, std::int32_t first_row,
                                        std::vector<AttentionSpan>& spans, std::int64_t& rows) {
  AttentionSpan add{.first_row = first_row, .rows = span.rows, .start = span.start, .slots = span.slots};
  if (pieces_) {
    runs_.clear();
    pieces_of(span, own_, window_, runs_);
    for (const PagePiece& run : runs_) {
      add.page_begin = run.begin;
      add.page_end = run.end;
      add.state_row = static_cast<std::int32_t>(rows);
      spans.push_back(add);
      rows += span.rows;
    }
    return;
  }
  // Pages of this coordinate side by side: those before the span's first lie wholly before all its tokens, so
  // that positions may be counted in them.
  std::vector<std::int32_t>& table = next_table();
  const std::int32_t first_page = span.start / kPageTokens;
  for (std::int32_t page = 0; page < first_page; ++page) {
    const auto at = static_cast<std::size_t>(page);
    if (span.owners[at] == own_) table.push_back(span.slots[at]);
  }
  const auto before = static_cast<std::int32_t>(table.size());
  const bool holds_own = span.owners[static_cast<std::size_t>(first_page)] == own_;
  add.start = before * kPageTokens + (holds_own ? span.start % kPageTokens : 0);
  for (std::int32_t page = first_page; holds_own && page <= span.last_page(); ++page)
    table.push_back(span.slots[static_cast<std::size_t>(page)]);
  add.slots = table;
  add.page_end = static_cast<std::int32_t>(table.size());
  add.state_row = static_cast<std::int32_t>(rows);
  spans.push_back(add);
  rows += span.rows;
}

// How the results of own spans whose queries travel are put together: in strict mode by position, else one
// coordinate after the other.
void ContextAttention::Plan::add_folds(const ContextWork& work, ContextTraffic traffic) {
  const std::size_t t = traffic_index(traffic);
  folds_[t].clear();
  parts_[t].clear();
  std::vector<std::int64_t> arrived(work.size(), 0);  // rows of each coordinate so far
  for (auto& queries : queries_out_[t]) queries.clear();
  std::vector<std::tuple<std::int32_t, std::int32_t, std::int64_t>> pieces;  // begin, source, row
  const std::vector<ContextSpan>& mine = work[static_cast<std::size_t>(own_)];
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const ContextSpan& span = mine[i];
    if (!passes_queries(span, window_) || traffic_of(span) != traffic) continue;
    Fold fold{span.first_row, span.rows, parts_[t].size(), 0};
    pieces.clear();
    for (std::size_t c = 0; c < work.size(); ++c) {
      const auto source = static_cast<std::int32_t>(c);
      const bool own = source == own_;
      const auto& sent = moves_[t].exchanges()[c].queries_out;
      const bool asked = own || std::ranges::binary_search(sent, static_cast<std::int32_t>(i));
      if (!asked) continue;
      std::int64_t& row = own ? own_state_rows_ : arrived[c];
      if (!pieces_) {
        pieces.emplace_back(0, source, row);
        if (!own) row += span.rows;
        continue;
      }
      runs_.clear();
      pieces_of(span, source, window_, runs_);
      std::int64_t at = row;
      for (const PagePiece& run : runs_) {
        pieces.emplace_back(run.begin, source, at);
        at += span.rows;
      }
      if (!own) row = at;
    }
    add_states(span, span.first_row, own_states_, own_state_rows_);
    if (pieces_) std::ranges::sort(pieces);
    std::int32_t segment = -1;
    for (const auto& [begin, source, row] : pieces) {
      const bool begins = pieces_ ? begin / kSegmentPages != segment : true;
      segment = begin / kSegmentPages;
      parts_[t].push_back({source, row, begins});
    }
    fold.parts = parts_[t].size() - fold.first_part;
    folds_[t].push_back(fold);
  }
}

}  // namespace shoal::parallel
