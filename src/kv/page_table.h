// The pages of one sequence in one KV group, by logical page: positions [32 i, 32 i + 32) lie in page i, on
// whichever coordinate its pool is.
//
// Thread-safety: none; it belongs to the engine thread, like its pools.
// Ownership: holds its pages: one holder each in its pool. clear() must come before destruction, because the
//   pools are the caller's.
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

class PageTable {
 public:
  std::int32_t size() const { return static_cast<std::int32_t>(pages_.size()); }
  std::int32_t first_kept() const { return first_kept_; }
  // Pages held now.
  std::int32_t held() const { return size() - first_kept_; }
  PageId page(std::int32_t logical) const { return pages_[static_cast<std::size_t>(logical)]; }
  bool has(std::int32_t logical) const { return logical >= first_kept_ && logical < size(); }
  // Slot of the last page where it lies in this pool, or -1: where a run would go on.
  std::int32_t last_slot(std::int32_t pool) const {
    return held() > 0 && pages_.back().pool == pool ? pages_.back().slot : -1;
  }

  // Starts over at logical page `first`, with nothing held. The table must be empty.
  void start_at(std::int32_t first) {
    pages_.assign(static_cast<std::size_t>(first), kNoPage);
    first_kept_ = first;
  }
  // Appends a page that the caller holds; the hold is the table's from now on.
  void append(PageId page) { pages_.push_back(page); }
  // Gives back all pages below logical page `first`. pools: all, by number. Returns whether any was held.
  bool release_below(std::int32_t first, std::span<PagePool> pools) {
    const bool any = first_kept_ < first && first_kept_ < size();
    for (; first_kept_ < first && first_kept_ < size(); ++first_kept_) {
      PageId& page = pages_[static_cast<std::size_t>(first_kept_)];
      pools[static_cast<std::size_t>(page.pool)].release(page);
      page = kNoPage;
    }
    return any;
  }
  void clear(std::span<PagePool> pools) {
    release_below(size(), pools);
    pages_.clear();
    first_kept_ = 0;
  }

 private:
  std::vector<PageId> pages_;
  std::int32_t first_kept_ = 0;
};

}  // namespace shoal::kv
