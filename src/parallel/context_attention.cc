#include "parallel/context_attention.h"

#include <algorithm>
#include <cstring>

namespace shoal::parallel {
namespace {

using comm::Purpose;
using kernels::AttentionShape;
using kernels::AttentionSpan;

constexpr Purpose purpose_of(ContextTraffic traffic) {
  return traffic == ContextTraffic::kRing ? Purpose::kCpRing : Purpose::kCpMerge;
}

// Rows of a landed part whose states lie apart before they are folded: 17 MB for 32 heads of size 64, while
// attending to 4,096 keys takes them half a second.
constexpr std::int32_t kLandedRows = 2048;

// Uses of room(). Those of both kinds of traffic lie side by side.
enum Room : std::size_t {
  kTokensOut,
  kTokensIn,
  kPagesOut,
  kOwnStates,
  kSplitStates,
  kLandedStates,
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
void ContextAttention::add_tokens(const ContextWork& work, std::int32_t with, MatrixView<const float> k,
                                  MatrixView<const float> v) {
  const std::int32_t own = peers_.context_index();
  const std::int64_t width = k.columns;
  std::vector<std::int32_t> rows;
  for (const ContextSpan& span : work[static_cast<std::size_t>(own)]) {
    each_foreign_token(span, own, [&](std::int32_t row, std::int32_t, std::int32_t owner, std::int32_t) {
      if (owner == with) rows.push_back(row);
    });
  }
  if (!rows.empty()) {
    const auto to = rows_in(kTokensOut, with, std::ssize(rows), 2 * width);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      float* at = to.row(static_cast<std::int64_t>(i));
      copy_rows(k, rows[i], 1, at);
      copy_rows(v, rows[i], 1, at + width);
    }
    out_.push_back({with, bytes_of(to)});
  }
  Arriving from;
  for (const ContextSpan& span : work[static_cast<std::size_t>(with)]) {
    each_foreign_token(span, with,
                       [&](std::int32_t, std::int32_t position, std::int32_t owner, std::int32_t slot) {
                         if (owner == own) from.places.emplace_back(position, slot);
                       });
  }
  if (from.places.empty()) return;
  from.rows = rows_in(kTokensIn, with, std::ssize(from.places), 2 * width);
  in_.push_back({with, writable_bytes_of(from.rows)});
  arriving_.push_back(std::move(from));
}

void ContextAttention::add_queries(const Plan& plan, ContextTraffic traffic, std::int32_t with,
                                   MatrixView<const float> q) {
  const std::size_t t = traffic_index(traffic);
  const std::vector<ContextSpan>& mine = (*plan.work_)[static_cast<std::size_t>(plan.own_)];
  const ContextExchange& exchange = plan.moves_[t].exchanges()[static_cast<std::size_t>(with)];
  if (exchange.query_rows_out > 0) {
    const auto to = rows_in(kQueriesOut + t, with, exchange.query_rows_out, q.columns);
    float* at = to.data;
    for (const std::int32_t index : exchange.queries_out) {
      const ContextSpan& span = mine[static_cast<std::size_t>(index)];
      copy_rows(q, span.first_row, span.rows, at);
      at += span.rows * q.columns;
    }
    out_.push_back({with, bytes_of(to)});
  }
  if (exchange.query_rows_in > 0)
    in_.push_back(
        {with, writable_bytes_of(rows_in(kQueriesIn + t, with, exchange.query_rows_in, q.columns))});
}

void ContextAttention::begin(const Plan& plan, const ContextWork& work, MatrixView<const float> q,
                             MatrixView<const float> k, MatrixView<const float> v) {
  out_.clear();
  in_.clear();
  arriving_.clear();
  for (std::int32_t c = 0; c < peers_.context_size(); ++c) {
    if (c == plan.own_) continue;
    add_tokens(work, c, k, v);
    add_queries(plan, ContextTraffic::kMerge, c, q);
  }
  receiving_ = true;
  calls_ = out_.size();
  if (!peers_.send_early(Purpose::kCpMerge, out_, calls_)) return;
  out_.clear();
  calls_ = 0;
}

void ContextAttention::receive(const AttentionShape& shape, const KvView& pool) {
  if (!std::exchange(receiving_, false)) return;
  move(Purpose::kCpMerge, calls_);
  if (!peers_.status().ok()) return;
  const std::int64_t width = static_cast<std::int64_t>(pool.layout.kv_heads) * pool.layout.head_dim;
  for (const Arriving& from : arriving_) {
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

// Tiles of a head's pages side by side, keys and values apart, straight to where they are attended to. In
// each step pages come from one coordinate and go to one.
void ContextAttention::begin_pages(Plan& plan, const AttentionShape& shape, const KvView& pool) {
  const ContextMoves& moves = plan.moves_[traffic_index(ContextTraffic::kRing)];
  const KvLayout& layout = pool.layout;
  const std::int32_t size = peers_.context_size();
  steps_.resize(static_cast<std::size_t>(size));
  for (std::int32_t step = 1; step < size; ++step) {
    Step& each = steps_[static_cast<std::size_t>(step)];
    each.out.clear();
    each.in.clear();
    const std::uint64_t calls = add_pages_out(plan, (plan.own_ + step) % size, shape, pool, each.out) ? 1 : 0;
    const std::int32_t from = (plan.own_ - step + size) % size;
    const auto& pages_in = moves.exchanges()[static_cast<std::size_t>(from)].pages_in;
    const std::size_t bytes = layout.tile_bytes() * pages_in.size();
    const std::int32_t bank = layout.layers + bank_of(from);
    for (std::int32_t head = 0; bytes > 0 && head < layout.kv_heads; ++head) {
      each.in.push_back({from, {pool.k<std::byte>(bank, head, 0), bytes}});
      each.in.push_back({from, {pool.v<std::byte>(bank, head, 0), bytes}});
    }
    peers_.begin_exchange(Purpose::kCpRing, each.out, each.in, calls);
  }
}

// False where there are none.
bool ContextAttention::add_pages_out(const Plan& plan, std::int32_t to, const AttentionShape& shape,
                                     const KvView& pool, std::vector<comm::Outgoing>& out) {
  const ContextMoves& moves = plan.moves_[traffic_index(ContextTraffic::kRing)];
  const std::vector<std::int32_t>& slots = moves.exchanges()[static_cast<std::size_t>(to)].pages_out;
  if (slots.empty()) return false;
  const std::int32_t heads = pool.layout.kv_heads;
  const std::size_t tile = pool.layout.tile_bytes();
  const bool one_run = slots.back() - slots.front() + 1 == std::ssize(slots) && std::ranges::is_sorted(slots);
  const std::size_t bytes = tile * slots.size();
  std::byte* copy =
      one_run ? nullptr : room(kPagesOut, to, 2 * bytes * static_cast<std::size_t>(heads)).data();
  for (std::int32_t head = 0; head < heads; ++head) {
    for (const bool key : {true, false}) {
      const auto tile_of = [&](std::int32_t slot) {
        return key ? pool.k<std::byte>(shape.layer, head, slot) : pool.v<std::byte>(shape.layer, head, slot);
      };
      if (one_run) {
        out.push_back({to, {tile_of(slots.front()), bytes}});
        continue;
      }
      for (std::size_t i = 0; i < slots.size(); ++i) std::memcpy(copy + i * tile, tile_of(slots[i]), tile);
      out.push_back({to, {copy, bytes}});
      copy += bytes;
    }
  }
  return true;
}

// Slots count from the layer that attends.
void ContextAttention::name_landed(Plan& plan, const AttentionShape& shape, const KvView& pool) const {
  const KvLayout& layout = pool.layout;
  for (const Plan::Landed& each : plan.landed_)
    plan.tables_[each.table][each.page] = each.arrival + (layout.layers + bank_of(each.owner) - shape.layer) *
                                                             2 * layout.kv_heads * layout.slots;
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
  const ContextExchange& with =
      plan.moves_[traffic_index(traffic)].exchanges()[static_cast<std::size_t>(source)];
  return rows_in(kStatesIn + traffic_index(traffic), source, with.state_rows_in, width);
}

void ContextAttention::compute_foreign(Plan& plan, ContextTraffic traffic, const AttentionShape& shape,
                                       const KvView& pool) {
  const std::size_t t = traffic_index(traffic);
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

void ContextAttention::begin_states(Plan& plan, ContextTraffic traffic, const AttentionShape& shape,
                                    bool early) {
  const std::size_t t = traffic_index(traffic);
  const std::int64_t width = wire_width(shape, plan.pieces_);
  const std::size_t in_room = (plan.pieces_ ? kStatesIn : kPackedIn) + t;
  for (std::int32_t c = 0; c < peers_.context_size(); ++c) {
    const ContextExchange& with = plan.moves_[t].exchanges()[static_cast<std::size_t>(c)];
    if (with.state_rows_out > 0)
      out_.push_back({c, bytes_of(rows_in(kStatesOut + t, c, with.state_rows_out, width))});
    if (with.state_rows_in > 0)
      in_.push_back({c, writable_bytes_of(rows_in(in_room, c, with.state_rows_in, width))});
  }
  calls_ = out_.size();
  if (!early || !peers_.send_early(purpose_of(traffic), out_, calls_)) return;
  out_.clear();
  calls_ = 0;
}

void ContextAttention::end_states(Plan& plan, ContextTraffic traffic, const AttentionShape& shape) {
  const std::size_t t = traffic_index(traffic);
  const std::int64_t width = wire_width(shape, plan.pieces_);
  move(purpose_of(traffic), calls_);
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
  const std::size_t t = traffic_index(traffic);
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

void ContextAttention::own_part(Plan& plan, std::span<const AttentionSpan> spans, const AttentionShape& shape,
                                const KvView& pool, MatrixView<const float> q) {
  if (spans.empty()) return;
  kernels::attention_states(context_, pool, shape, spans, q,
                            states_of(plan, kContextTraffics[0], shape, plan.own_));
}

// What one coordinate's pages, which have come, say to rows that see them.
void ContextAttention::attend_landed(Plan& plan, std::int32_t owner, const AttentionShape& shape,
                                     const KvView& pool, MatrixView<const float> q,
                                     MatrixView<float> states) {
  const std::int64_t width = kernels::state_width(shape.query_heads, shape.head_dim);
  for (AttentionSpan part : plan.split_landed_[static_cast<std::size_t>(owner)]) {
    const std::int32_t rows = part.rows;
    const std::int32_t first_row = part.first_row;
    const std::int32_t first_state = part.state_row;
    for (std::int32_t row = 0; row < rows; row += kLandedRows) {
      part.first_row = first_row + row;
      part.rows = std::min(kLandedRows, rows - row);
      part.state_row = 0;
      const auto landed = rows_in(kLandedStates, owner, part.rows, width);
      kernels::attention_states(context_, pool, shape, std::span(&part, 1), q, landed);
      kernels::fold_attention_states(context_, shape, some_rows(states, first_state + row, part.rows),
                                     landed);
    }
  }
}

void ContextAttention::attend(Plan& plan, const AttentionShape& shape, const KvView& pool,
                              MatrixView<const float> q, MatrixView<float> out) {
  // However this ends: until then pages and rooms are in use.
  struct Awaiting {
    Peers& peers;
    ~Awaiting() {
      while (peers.exchanging()) peers.await_exchange();
    }
  } const awaiting{peers_};
  const std::int64_t width = kernels::state_width(shape.query_heads, shape.head_dim);
  // Where no prompt's pages or queries are on their way, too, a coordinate that is late for queries or
  // results is waited for behind half of the own part each. No other sequence's tokens come into pages that
  // decoded tokens see.
  const bool ring = plan.moves_[traffic_index(ContextTraffic::kRing)].any();
  const std::span own_states(plan.own_states_);
  const auto decoded = own_states.subspan(plan.own_decoded_);
  const std::size_t before = ring ? decoded.size() : (decoded.size() + 1) / 2;
  own_part(plan, decoded.first(before), shape, pool, q);
  receive(shape, pool);
  for (std::int32_t c = 0; c < peers_.context_size(); ++c) {
    if (c != plan.own_) add_queries(plan, ContextTraffic::kRing, c, q);
  }
  move(Purpose::kCpRing, out_.size());
  begin_pages(plan, shape, pool);
  if (!peers_.status().ok()) return;
  name_landed(plan, shape, pool);
  // What others wait for first.
  for (const ContextTraffic traffic : kContextTraffics) compute_foreign(plan, traffic, shape, pool);
  if (!ring) begin_states(plan, ContextTraffic::kMerge, shape, true);
  own_part(plan, decoded.subspan(before), shape, pool, q);
  own_part(plan, own_states.first(plan.own_decoded_), shape, pool, q);
  if (!plan.direct_.empty()) kernels::attention(context_, pool, shape, plan.direct_, q, out);
  const auto split = rows_in(kSplitStates, plan.own_, plan.split_rows_, width);
  if (!plan.split_own_.empty()) kernels::attention_states(context_, pool, shape, plan.split_own_, q, split);
  for (std::int32_t step = 1; step < peers_.context_size(); ++step) {
    peers_.await_exchange();
    if (!peers_.status().ok()) return;
    attend_landed(plan, (plan.own_ - step + peers_.context_size()) % peers_.context_size(), shape, pool, q,
                  split);
  }
  if (!plan.late_.empty()) kernels::attention(context_, pool, shape, plan.late_, q, out);
  if (!plan.masked_.empty())
    kernels::attention_states(context_, pool, shape, plan.masked_, q,
                              rows_in(kMasked, plan.own_, plan.masked_rows_, width));
  for (const Plan::Split& each : plan.splits_)
    kernels::finish_attention_states(context_, shape, some_rows(split, each.first_state, each.rows),
                                     some_rows(out, each.first_row, each.rows));
  if (ring) {
    begin_states(plan, ContextTraffic::kRing, shape, false);
    end_states(plan, ContextTraffic::kRing, shape);
    begin_states(plan, ContextTraffic::kMerge, shape, false);
  }
  end_states(plan, ContextTraffic::kMerge, shape);
  if (!peers_.status().ok()) return;
  for (const ContextTraffic traffic : kContextTraffics) fold(plan, traffic, shape, out);
}

}  // namespace shoal::parallel
