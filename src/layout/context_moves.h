// What the coordinates of a worker move between each other in one layer of a step, because a sequence's pages
// lie with several of them: pages to where queries are, or queries to where pages are and partial results
// back, and keys and values of tokens whose page another coordinate owns.
//
// Everybody computes the same from the same step plan: nothing is asked for and nothing announced.
//
// Thread-safety: make() belongs to one thread; a finished ContextMoves is a value.
// Ownership: borrows the spans' page tables until the next make().
// Invariants: what one coordinate lists as sent to another, that one lists as received, in the same order. A
//   page goes to a coordinate once, however many of its spans see it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "layout/kv_groups.h"

namespace shoal {

// Consecutive new tokens of one sequence on one coordinate.
struct ContextSpan {
  std::int32_t first_row = 0;  // in its coordinate's batch
  std::int32_t rows = 0;
  std::int32_t start = 0;         // position of the first
  bool pass_queries = false;      // WorkItem::pass_queries
  bool decodes = false;           // the token sampled last
  std::int32_t masked_pages = 0;  // behind its last page, that are computed although nothing of them is seen
  // By logical page up to end_page(): slot in its owner's pool, and owner. Behind a window: -1.
  std::span<const std::int32_t> slots;
  std::span<const std::int32_t> owners;

  std::int32_t last_page() const { return (start + rows - 1) / kPageTokens; }
  std::int32_t end_page() const { return last_page() + 1 + masked_pages; }
};

// Of every coordinate, its spans in order.
using ContextWork = std::vector<std::vector<ContextSpan>>;

// Logical pages [begin, end) of one owner.
struct PagePiece {
  std::int32_t begin = 0;
  std::int32_t end = 0;
};

// What is moved for whom: prompts' tokens (cp_ring) or decoded ones (cp_merge).
enum class ContextTraffic : std::uint8_t { kRing, kMerge };
inline constexpr ContextTraffic kContextTraffics[] = {ContextTraffic::kRing, ContextTraffic::kMerge};
constexpr std::size_t traffic_index(ContextTraffic traffic) { return static_cast<std::size_t>(traffic); }
constexpr ContextTraffic traffic_of(const ContextSpan& span) {
  return span.decodes ? ContextTraffic::kMerge : ContextTraffic::kRing;
}

// Whether a span's queries go to where pages are. A decoded token's always do; those of a prompt where the
// plan says so, and not in a window, whose pages are few.
constexpr bool passes_queries(const ContextSpan& span, std::int32_t window) {
  return span.decodes || (span.pass_queries && window == 0 && span.masked_pages == 0);
}

// A coordinate's exchange with one other.
struct ContextExchange {
  // Slots of one's own pool that go there; of its pool that come here.
  std::vector<std::int32_t> pages_out;
  std::vector<std::int32_t> pages_in;
  // Own spans whose queries go there; its spans whose queries come here; by index.
  std::vector<std::int32_t> queries_out;
  std::vector<std::int32_t> queries_in;
  std::int64_t query_rows_out = 0;
  std::int64_t query_rows_in = 0;
  // Rows, of results: one for each query row, or in strict mode for each query row and piece.
  std::int64_t state_rows_out = 0;
  std::int64_t state_rows_in = 0;
};

class ContextMoves {
 public:
  // Of one KV group, in which spans see `window` positions (0: all), seen from coordinate `own`. pieces:
  // strict mode, in which each piece has a result of its own.
  void make(const ContextWork& work, ContextTraffic traffic, std::int32_t own, std::int32_t window,
            bool pieces);

  // By coordinate; one's own place is empty.
  const std::vector<ContextExchange>& exchanges() const { return exchanges_; }
  bool any() const { return any_; }
  // Where a page of pool `owner` lies in pages_in; -1 where it does not come.
  std::int32_t arrival(std::int32_t owner, std::int32_t slot) const;

 private:
  void add_pages(std::int32_t from, std::int32_t to, std::int32_t own, std::int32_t slot);

  std::vector<ContextExchange> exchanges_;
  bool any_ = false;
  std::int32_t own_ = 0;
  // By owner and slot: the destination it was listed for last, and where. Stamped, never cleared.
  struct Mark {
    std::uint32_t stamp = 0;
    std::int32_t index = 0;
  };
  std::vector<std::vector<Mark>> in_marks_;            // [owner][slot], of what comes here
  std::vector<std::vector<std::uint32_t>> out_marks_;  // [destination][own slot]
  std::uint32_t stamp_ = 0;
};

// Whether some span sees a page of another coordinate, or writes to one: in any group.
bool crosses(const ContextSpan& span, std::int32_t coordinate);

// The runs of a span's visible pages that `owner` holds, in order: what it sends one partial result each for
// in strict mode. A run begins a segment, or is a single page, so that folding runs by position inside each
// segment, then segments, is folding pages one by one (docs/execution.md S3).
void pieces_of(const ContextSpan& span, std::int32_t owner, std::int32_t window, std::vector<PagePiece>& out);

// Tokens of a span that are written to pages of other coordinates, one by one: f(row, position, owner, slot).
template <typename F>
void each_foreign_token(const ContextSpan& span, std::int32_t coordinate, F&& f) {
  for (std::int32_t row = 0; row < span.rows; ++row) {
    const auto page = static_cast<std::size_t>((span.start + row) / kPageTokens);
    if (span.owners[page] != coordinate)
      f(span.first_row + row, span.start + row, span.owners[page], span.slots[page]);
  }
}

}  // namespace shoal
