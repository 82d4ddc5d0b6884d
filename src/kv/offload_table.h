// What a worker's ranks keep for sequences that gave way, as the head sees it: which places of their offload
// buffers hold which pages.
//
// Thread-safety: none; it belongs to the engine thread.
// Ownership: owns the tables, not the bytes (kv/offload_buffer.h). A place is taken or free.
// Invariants: a page's place is on the ranks that hold the page.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/page_pool.h"

namespace shoal::kv {

struct StowedPage {
  std::int32_t group = 0;
  std::int32_t logical = 0;
  PageId place;  // pool: the page's, hence its coordinate and group; slot: the place
};

// Of one sequence.
struct StowedPages {
  std::int64_t computed = 0;      // positions that its pages held
  std::int32_t first = 0;         // pages below were others', too, and stayed with them
  std::vector<StowedPage> pages;  // by group, then logical page
};

class OffloadTable {
 public:
  // places: of each pool. pools: coordinates x groups.
  OffloadTable(std::int32_t pools, std::int32_t places);

  // Whether there is room for so many pages of each pool; needed: by pool.
  bool has_room(std::span<const std::int32_t> needed) const;
  // Gives a page a place where there is one: false where not.
  bool take(std::int32_t group, std::int32_t logical, PageId page, StowedPages& into);
  void release(const StowedPages& stowed);
  // Nothing is kept any more.
  void clear();

  // Of each pool.
  std::int32_t places() const { return pools_.front().capacity(); }
  // Pages kept in this pool's places.
  std::int32_t kept(std::int32_t pool) const { return pools_[static_cast<std::size_t>(pool)].held(); }

 private:
  std::vector<PagePool> pools_;
};

}  // namespace shoal::kv
