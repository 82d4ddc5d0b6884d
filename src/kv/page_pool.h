// The pages of one KV group's pool on one coordinate: who holds which, and which are free.
//
// Thread-safety: none. A pool belongs to the engine thread; a writer on another machine reaches the bytes of
//   a page but never this table.
// Ownership: a page is free, or held by one or more holders (sequences, open rooms), or kept by the prefix
//   tree, or both. Holding is counted: retain/release.
// Invariants:
//   1. free + cached + held + fenced == capacity, at every return from a public function.
//   2. A fenced page is not given out: a peer may still be writing it.
//   3. A slot's generation grows each time it is given out; an id that carries an older one is refused.
//   4. take() gives all or nothing.

#pragma once

#include <cstdint>
#include <vector>

#include "core/expected.h"
#include "layout/step_plan.h"

namespace shoal::kv {

enum class PageState : std::uint8_t { kFree, kCached, kHeld, kFenced };

class PagePool {
 public:
  // pool: the number that its pages carry. capacity: pages; all start free with generation 0.
  PagePool(std::int32_t pool, std::int32_t capacity);

  // Takes n pages, each with one holder, or none: a partial grant would have to be undone by every caller.
  // Prefers the slots right after `after` (a sequence's last page), then the first run of n, then the lowest
  // free slots: neighbouring slots move as few long runs. Fails with kExhausted, saying how many are free.
  Expected<std::vector<PageId>> take(std::int32_t n, std::int32_t after = -1);

  // One more holder. False for an id whose generation is over, or for a page that is free.
  bool retain(PageId page);
  // One holder less; the last one frees, unless the tree keeps the page or a peer may still write it. False
  // for an id that nobody holds.
  bool release(PageId page);

  // The prefix tree keeps the page from now on, or no longer. False for an id that is not current.
  bool keep(PageId page);
  bool forget(PageId page);

  // A peer may write the page until unfence(): it is not given out before, whoever releases it.
  bool fence(PageId page);
  bool unfence(PageId page);

  // True while the id names what was given out last under its slot and that is not free.
  bool current(PageId page) const;
  PageState state(std::int32_t slot) const;
  // How many hold the page.
  std::int32_t holders(PageId page) const {
    return current(page) ? slots_[static_cast<std::size_t>(page.slot)].holders : 0;
  }

  std::int32_t capacity() const { return static_cast<std::int32_t>(slots_.size()); }
  std::int32_t free() const { return count(PageState::kFree); }
  std::int32_t cached() const { return count(PageState::kCached); }
  std::int32_t held() const { return count(PageState::kHeld); }
  std::int32_t fenced() const { return count(PageState::kFenced); }

 private:
  struct Slot {
    std::uint32_t generation = 0;
    std::int32_t holders = 0;
    bool kept = false;
    bool fenced = false;
  };

  std::int32_t count(PageState state) const { return counts_[static_cast<std::size_t>(state)]; }
  bool is_free(std::int32_t slot) const {
    return (free_bits_[static_cast<std::size_t>(slot) / 64] >> (slot % 64) & 1) != 0;
  }
  bool run_at(std::int32_t slot, std::int32_t n) const;
  std::int32_t first_run(std::int32_t n) const;
  PageId give(std::int32_t slot);
  // Applies f to the slot and moves it between the counts.
  template <typename F>
  void change(std::int32_t slot, F&& f);

  std::int32_t pool_;
  std::vector<Slot> slots_;
  std::vector<std::uint64_t> free_bits_;  // 1: free
  std::int32_t counts_[4] = {};
};

}  // namespace shoal::kv
