// The pages of one sequence in one KV group, by logical page: positions [32 i, 32 i + 32) lie in page i.
//
// Thread-safety: none; it belongs to the engine thread, like its pool.
// Ownership: holds its pages: one holder each in the pool. clear() must come before destruction, because the
//   pool is the caller's.
// Invariants:
//   1. Logical pages [first_kept, size) are present, those below were given back: the window has passed them.
//   2. Without a window first_kept is 0.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/page_pool.h"
#include "tensor/kv_layout.h"

namespace shoal::kv {

inline constexpr PageId kNoPage{-1, -1, 0};

constexpr std::int32_t pages_for(std::int64_t tokens) {
  return static_cast<std::int32_t>((tokens + kPageTokens - 1) / kPageTokens);
}

// First logical page that a query at `position` can see; window 0 sees all.
constexpr std::int32_t first_visible_page(std::int64_t position, std::int32_t window) {
  if (window <= 0 || position < window) return 0;
  return static_cast<std::int32_t>((position - window + 1) / kPageTokens);
}

class PageTable {
 public:
  std::int32_t size() const { return static_cast<std::int32_t>(pages_.size()); }
  std::int32_t first_kept() const { return first_kept_; }
  // Pages held now.
  std::int32_t held() const { return size() - first_kept_; }
  PageId page(std::int32_t logical) const { return pages_[static_cast<std::size_t>(logical)]; }
  bool has(std::int32_t logical) const { return logical >= first_kept_ && logical < size(); }
  // Slot of the last page, or -1: where a run would go on.
  std::int32_t last_slot() const { return held() > 0 ? pages_.back().slot : -1; }

  // Starts over at logical page `first`, with nothing held. The table must be empty.
  void start_at(std::int32_t first) {
    pages_.assign(static_cast<std::size_t>(first), kNoPage);
    first_kept_ = first;
  }
  // Appends a page that the caller holds; the hold is the table's from now on.
  void append(PageId page) { pages_.push_back(page); }
  // Gives back all pages below logical page `first`. Returns whether any was held.
  bool release_below(std::int32_t first, PagePool& pool) {
    const bool any = first_kept_ < first && first_kept_ < size();
    for (; first_kept_ < first && first_kept_ < size(); ++first_kept_) {
      pool.release(pages_[static_cast<std::size_t>(first_kept_)]);
      pages_[static_cast<std::size_t>(first_kept_)] = kNoPage;
    }
    return any;
  }
  void clear(PagePool& pool) {
    release_below(size(), pool);
    pages_.clear();
    first_kept_ = 0;
  }

 private:
  std::vector<PageId> pages_;
  std::int32_t first_kept_ = 0;
};

}  // namespace shoal::kv
