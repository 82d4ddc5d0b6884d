#include "parallel/context_attention.h"

#include <algorithm>
#include <cstring>
#include <tuple>

namespace shoal::parallel {
namespace {

using comm::Purpose;
using kernels::AttentionShape;
using kernels::AttentionSpan;

constexpr std::size_t index_of(ContextTraffic traffic) { return static_cast<std::size_t>(traffic); }
constexpr Purpose purpose_of(ContextTraffic traffic) {
  return traffic == ContextTraffic::kRing ? Purpose::kCpRing : Purpose::kCpMerge;
}
constexpr ContextTraffic kBoth[] = {ContextTraffic::kRing, ContextTraffic::kMerge};

// Uses of room(). Those of both kinds of traffic lie side by side.
enum Room : std::size_t {
  kTokensOut,
  kTokensIn,
  kPagesOut,
  kOwnStates,
  kTotals,
  kMasked,
  kRawStates,
  kPacked,
  kPackedIn = kPacked + 2,
  kQueriesOut = kPackedIn + 2,
  kQueriesIn = kQueriesOut + 2,
  kStatesOut = kQueriesIn + 2,
  kStatesIn = kStatesOut + 2,
  kRooms = kStatesIn + 2,
};

std::span<const std::byte> bytes_of(MatrixView<float> m) {
  return std::as_bytes(std::span(m.data, static_cast<std::size_t>(m.rows * m.columns)));
}
std::span<std::byte> writable_bytes_of(MatrixView<float> m) {
  return std::as_writable_bytes(std::span(m.data, static_cast<std::size_t>(m.rows * m.columns)));
}

MatrixView<float> some_rows(MatrixView<float> m, std::int64_t first, std::int64_t rows) {
  return {m.row(first), rows, m.columns, m.stride};
}

void copy_rows(MatrixView<const float> from, std::int64_t first, std::int64_t rows, float* to) {
  for (std::int64_t row = 0; row < rows; ++row)
    std::memcpy(to + row * from.columns, from.row(first + row),
                static_cast<std::size_t>(from.columns) * sizeof(float));
}

// Values of a row of states as they travel.
std::int64_t wire_width(const AttentionShape& shape, bool pieces) {
  return pieces ? kernels::state_width(shape.query_heads, shape.head_dim)
                : kernels::packed_state_width(shape.query_heads, shape.head_dim);
}

}  // namespace

// -- what a pass comes to

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
  own_states_.clear();
  own_state_rows_ = 0;
  masked_.clear();
  masked_rows_ = 0;
  tables_used_ = 0;
  landed_.clear();
  for (const ContextTraffic traffic : kBoth)
    moves_[index_of(traffic)].make(work, traffic, own, window, pieces_);
  const auto mine = static_cast<std::size_t>(own);
  for (const ContextSpan& span : work[mine]) {
    if (!passes_queries(span, window)) add_direct(span);
  }
  for (const ContextTraffic traffic : kBoth) {
    const std::size_t t = index_of(traffic);
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
    add_folds(work, traffic);
  }
}

// Its table names pages here, and those that land, by slot.
void ContextAttention::Plan::add_direct(const ContextSpan& span) {
  AttentionSpan direct{
      .first_row = span.first_row, .rows = span.rows, .start = span.start, .slots = span.slots};
  const ContextMoves& moves = moves_[index_of(ContextTraffic::kRing)];
  const std::int32_t first = first_visible_page(span.start, window_);
  std::vector<std::int32_t>* table = nullptr;
  for (std::int32_t page = first; page < span.end_page(); ++page) {
    const auto at = static_cast<std::size_t>(page);
    if (span.owners[at] == own_) continue;
    if (table == nullptr) {
      table = &next_table();
      table->assign(span.slots.begin(), span.slots.begin() + span.end_page());
    }
    // The bank is added for each layer.
    (*table)[at] = moves.arrival(span.owners[at], span.slots[at]);
    landed_.push_back({tables_used_ - 1, at, span.owners[at]});
  }
  if (table != nullptr) direct.slots = *table;
  direct_.push_back(direct);
  if (span.masked_pages == 0) return;
  // From behind all pages each token of those that the mask hides is in sight. What comes of it goes nowhere.
  direct.page_begin = span.last_page() + 1;
  direct.page_end = span.end_page();
  direct.start = direct.page_end * kPageTokens;
  direct.state_row = static_cast<std::int32_t>(masked_rows_);
  masked_.push_back(direct);
  masked_rows_ += span.rows;
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
  const std::size_t t = index_of(traffic);
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

// -- moving

std::span<std::byte> ContextAttention::room(std::size_t use, std::int32_t coordinate, std::size_t bytes) {
  const auto coordinates = static_cast<std::size_t>(peers_.context_size());
  if (rooms_.empty()) rooms_.resize(kRooms * coordinates);
  Buffer& buffer = rooms_[use * coordinates + static_cast<std::size_t>(coordinate)];
  if (buffer.size() < bytes) {
    // A quarter more than asked: decoding grows by a piece at a time.
    auto larger = Buffer::allocate(bytes + bytes / 4, "context parallel scratch");
    if (!larger) throw std::bad_alloc();
    buffer = std::move(*larger);
  }
  return {buffer.data(), bytes};
}

MatrixView<float> ContextAttention::rows_in(std::size_t use, std::int32_t coordinate, std::int64_t rows,
                                            std::int64_t columns) {
  const auto bytes = room(use, coordinate, static_cast<std::size_t>(rows * columns) * sizeof(float));
  return {reinterpret_cast<float*>(bytes.data()), rows, columns};
}

void ContextAttention::move(Purpose purpose, std::uint64_t calls) {
  peers_.exchange(purpose, out_, in_, calls);
  out_.clear();
  in_.clear();
}

// Keys, then values, of each coordinate's tokens side by side.
void ContextAttention::exchange_tokens(const ContextWork& work, const AttentionShape& shape,
                                       const KvView& pool, MatrixView<const float> k,
                                       MatrixView<const float> v) {
  const std::int32_t own = peers_.context_index();
  const std::int64_t width = static_cast<std::int64_t>(pool.layout.kv_heads) * pool.layout.head_dim;
  struct Arrived {
    MatrixView<float> rows;
    std::vector<std::pair<std::int32_t, std::int32_t>> places;  // position, slot
  };
  std::vector<Arrived> arrived;
  for (std::int32_t c = 0; c < peers_.context_size(); ++c) {
    if (c == own) continue;
    std::vector<std::int32_t> rows;
    for (const ContextSpan& span : work[static_cast<std::size_t>(own)]) {
      each_foreign_token(span, own, [&](std::int32_t row, std::int32_t, std::int32_t owner, std::int32_t) {
        if (owner == c) rows.push_back(row);
      });
    }
    if (!rows.empty()) {
      const auto to = rows_in(kTokensOut, c, std::ssize(rows), 2 * width);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        float* at = to.row(static_cast<std::int64_t>(i));
        copy_rows(k, rows[i], 1, at);
        copy_rows(v, rows[i], 1, at + width);
      }
      out_.push_back({c, bytes_of(to)});
    }
    Arrived from;
    for (const ContextSpan& span : work[static_cast<std::size_t>(c)]) {
      each_foreign_token(span, c,
                         [&](std::int32_t, std::int32_t position, std::int32_t owner, std::int32_t slot) {
                           if (owner == own) from.places.emplace_back(position, slot);
                         });
    }
    if (from.places.empty()) continue;
    from.rows = rows_in(kTokensIn, c, std::ssize(from.places), 2 * width);
    in_.push_back({c, writable_bytes_of(from.rows)});
    arrived.push_back(std::move(from));
  }
  move(Purpose::kCpMerge, out_.size());
  if (!peers_.status().ok()) return;
  for (const Arrived& from : arrived) {
    for (std::size_t i = 0; i < from.places.size(); ++i) {
      const auto [position, slot] = from.places[i];
      float* row = from.rows.row(static_cast<std::int64_t>(i));
      // One page that the position falls into: the table needs no other.
      const std::int32_t token = position % kPageTokens;
      const AttentionSpan span{.first_row = 0, .rows = 1, .start = token, .slots = std::span(&slot, 1)};
      kernels::write_kv(context_, pool, shape, std::span(&span, 1), {row, 1, width, width},
                        {row + width, 1, width, width});
    }
  }
}

void ContextAttention::exchange_queries(Plan& plan, ContextTraffic traffic, MatrixView<const float> q) {
  const std::size_t t = index_of(traffic);
  const ContextWork& work = *plan.work_;
  for (std::int32_t c = 0; c < peers_.context_size(); ++c) {
    const ContextExchange& with = plan.moves_[t].exchanges()[static_cast<std::size_t>(c)];
    if (with.query_rows_out > 0) {
      const auto to = rows_in(kQueriesOut + t, c, with.query_rows_out, q.columns);
      float* at = to.data;
      for (const std::int32_t index : with.queries_out) {
        const ContextSpan& span = work[static_cast<std::size_t>(plan.own_)][static_cast<std::size_t>(index)];
        copy_rows(q, span.first_row, span.rows, at);
        at += span.rows * q.columns;
      }
      out_.push_back({c, bytes_of(to)});
    }
    if (with.query_rows_in > 0)
      in_.push_back({c, writable_bytes_of(rows_in(kQueriesIn + t, c, with.query_rows_in, q.columns))});
  }
  move(purpose_of(traffic), out_.size());
}

// Tiles of a head's pages side by side, keys and values apart, straight to where they are attended to.
void ContextAttention::exchange_pages(Plan& plan, const AttentionShape& shape, const KvView& pool) {
  const ContextMoves& moves = plan.moves_[index_of(ContextTraffic::kRing)];
  const KvLayout& layout = pool.layout;
  const std::size_t tile = layout.tile_bytes();
  std::uint64_t calls = 0;
  for (std::int32_t c = 0; c < peers_.context_size(); ++c) {
    const ContextExchange& with = moves.exchanges()[static_cast<std::size_t>(c)];
    const std::vector<std::int32_t>& slots = with.pages_out;
    if (!slots.empty()) {
      ++calls;
      const bool one_run =
          slots.back() - slots.front() + 1 == std::ssize(slots) && std::ranges::is_sorted(slots);
      const std::size_t bytes = tile * slots.size();
      std::byte* copy =
          one_run ? nullptr
                  : room(kPagesOut, c, 2 * bytes * static_cast<std::size_t>(layout.kv_heads)).data();
      for (std::int32_t head = 0; head < layout.kv_heads; ++head) {
        for (const bool key : {true, false}) {
          const auto tile_of = [&](std::int32_t slot) {
            return key ? pool.k<std::byte>(shape.layer, head, slot)
                       : pool.v<std::byte>(shape.layer, head, slot);
          };
          if (one_run) {
            out_.push_back({c, {tile_of(slots.front()), bytes}});
            continue;
          }
          for (std::size_t i = 0; i < slots.size(); ++i)
            std::memcpy(copy + i * tile, tile_of(slots[i]), tile);
          out_.push_back({c, {copy, bytes}});
          copy += bytes;
        }
      }
    }
    if (with.pages_in.empty()) continue;
    const std::size_t bytes = tile * with.pages_in.size();
    const std::int32_t bank = layout.layers + bank_of(c);
    for (std::int32_t head = 0; head < layout.kv_heads; ++head) {
      in_.push_back({c, {pool.k<std::byte>(bank, head, 0), bytes}});
      in_.push_back({c, {pool.v<std::byte>(bank, head, 0), bytes}});
    }
  }
  move(Purpose::kCpRing, calls);
}

// Each coordinate's pages land in a bank of their own.
std::int32_t ContextAttention::bank_of(std::int32_t coordinate) const {
  const std::int32_t size = peers_.context_size();
  return (coordinate - peers_.context_index() + size) % size - 1;
}

// -- computing

MatrixView<float> ContextAttention::states_of(const Plan& plan, ContextTraffic traffic,
                                              const AttentionShape& shape, std::int32_t source) {
  const std::int64_t width = kernels::state_width(shape.query_heads, shape.head_dim);
  if (source == plan.own_) return rows_in(kOwnStates, source, plan.own_state_rows_, width);
  const ContextExchange& with = plan.moves_[index_of(traffic)].exchanges()[static_cast<std::size_t>(source)];
  return rows_in(kStatesIn + index_of(traffic), source, with.state_rows_in, width);
}

void ContextAttention::compute_foreign(Plan& plan, ContextTraffic traffic, const AttentionShape& shape,
                                       const KvView& pool) {
  const std::size_t t = index_of(traffic);
  const std::int64_t q_width = static_cast<std::int64_t>(shape.query_heads) * shape.head_dim;
  const std::int64_t width = kernels::state_width(shape.query_heads, shape.head_dim);
  for (std::int32_t c = 0; c < peers_.context_size(); ++c) {
    const ContextExchange& with = plan.moves_[t].exchanges()[static_cast<std::size_t>(c)];
    if (with.query_rows_in == 0) continue;
    const auto q = rows_in(kQueriesIn + t, c, with.query_rows_in, q_width);
    const auto states =
        rows_in(plan.pieces_ ? kStatesOut + t : std::size_t{kRawStates}, c, with.state_rows_out, width);
    kernels::attention_states(context_, pool, shape, plan.foreign_[t][static_cast<std::size_t>(c)], q,
                              states);
    if (plan.pieces_) continue;
    kernels::pack_attention_states(context_, shape, states,
                                   rows_in(kStatesOut + t, c, with.state_rows_out, wire_width(shape, false)));
  }
}

void ContextAttention::exchange_states(Plan& plan, ContextTraffic traffic, const AttentionShape& shape) {
  const std::size_t t = index_of(traffic);
  const std::int64_t width = wire_width(shape, plan.pieces_);
  const std::size_t in_room = (plan.pieces_ ? kStatesIn : kPackedIn) + t;
  for (std::int32_t c = 0; c < peers_.context_size(); ++c) {
    const ContextExchange& with = plan.moves_[t].exchanges()[static_cast<std::size_t>(c)];
    if (with.state_rows_out > 0)
      out_.push_back({c, bytes_of(rows_in(kStatesOut + t, c, with.state_rows_out, width))});
    if (with.state_rows_in > 0)
      in_.push_back({c, writable_bytes_of(rows_in(in_room, c, with.state_rows_in, width))});
  }
  move(purpose_of(traffic), out_.size());
  if (plan.pieces_ || !peers_.status().ok()) return;
  for (std::int32_t c = 0; c < peers_.context_size(); ++c) {
    const ContextExchange& with = plan.moves_[t].exchanges()[static_cast<std::size_t>(c)];
    if (with.state_rows_in == 0) continue;
    kernels::unpack_attention_states(context_, shape, rows_in(kPackedIn + t, c, with.state_rows_in, width),
                                     states_of(plan, traffic, shape, c));
  }
}

void ContextAttention::fold(Plan& plan, ContextTraffic traffic, const AttentionShape& shape,
                            MatrixView<float> out) {
  const std::size_t t = index_of(traffic);
  const std::int64_t width = kernels::state_width(shape.query_heads, shape.head_dim);
  for (const Plan::Fold& fold : plan.folds_[t]) {
    const auto total = rows_in(kTotals, 0, fold.rows, width);
    const auto segment = rows_in(kTotals, 1, fold.rows, width);
    kernels::clear_attention_states(shape, total);
    for (std::size_t i = 0; i < fold.parts;) {
      const auto part = [&](std::size_t at) {
        const Plan::Part& each = plan.parts_[t][fold.first_part + at];
        return some_rows(states_of(plan, traffic, shape, each.source), each.first_row, fold.rows);
      };
      std::size_t end = i + 1;
      while (end < fold.parts && !plan.parts_[t][fold.first_part + end].begins_segment) ++end;
      if (end == i + 1) {
        kernels::fold_attention_states(context_, shape, total, part(i));
      } else {
        kernels::clear_attention_states(shape, segment);
        for (std::size_t at = i; at < end; ++at)
          kernels::fold_attention_states(context_, shape, segment, part(at));
        kernels::fold_attention_states(context_, shape, total, segment);
      }
      i = end;
    }
    kernels::finish_attention_states(context_, shape, total, some_rows(out, fold.first_row, fold.rows));
  }
}

void ContextAttention::attend(Plan& plan, const AttentionShape& shape, const KvView& pool,
                              MatrixView<const float> q, MatrixView<float> out) {
  for (const ContextTraffic traffic : kBoth) exchange_queries(plan, traffic, q);
  exchange_pages(plan, shape, pool);
  if (!peers_.status().ok()) return;
  // What others wait for first.
  for (const ContextTraffic traffic : kBoth) compute_foreign(plan, traffic, shape, pool);
  const std::int32_t slots = pool.layout.slots;
  const auto shift = [&](const Plan::Landed& at, std::int32_t sign) {
    plan.tables_[at.table][at.page] +=
        sign * (pool.layout.layers + bank_of(at.owner) - shape.layer) * 2 * pool.layout.kv_heads * slots;
  };
  for (const Plan::Landed& each : plan.landed_) shift(each, 1);
  if (!plan.direct_.empty()) kernels::attention(context_, pool, shape, plan.direct_, q, out);
  if (!plan.masked_.empty())
    kernels::attention_states(context_, pool, shape, plan.masked_, q,
                              rows_in(kMasked, plan.own_, plan.masked_rows_,
                                      kernels::state_width(shape.query_heads, shape.head_dim)));
  for (const Plan::Landed& each : plan.landed_) shift(each, -1);
  if (!plan.own_states_.empty())
    kernels::attention_states(context_, pool, shape, plan.own_states_, q,
                              states_of(plan, kBoth[0], shape, plan.own_));
  for (const ContextTraffic traffic : kBoth) exchange_states(plan, traffic, shape);
  if (!peers_.status().ok()) return;
  for (const ContextTraffic traffic : kBoth) fold(plan, traffic, shape, out);
}

}  // namespace shoal::parallel
