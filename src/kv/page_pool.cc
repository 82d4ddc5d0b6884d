#include "kv/page_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace shoal::kv {

PagePool::PagePool(std::int32_t pool, std::int32_t capacity)
    : pool_(pool),
      slots_(static_cast<std::size_t>(std::max(capacity, 0))),
      free_bits_((slots_.size() + 63) / 64) {
  for (std::size_t slot = 0; slot < slots_.size(); ++slot)
    free_bits_[slot / 64] |= std::uint64_t{1} << (slot % 64);
  counts_[static_cast<std::size_t>(PageState::kFree)] = this->capacity();
}

PageState PagePool::state(std::int32_t slot) const {
  const Slot& s = slots_[static_cast<std::size_t>(slot)];
  if (s.holders > 0) return PageState::kHeld;
  if (s.fenced) return PageState::kFenced;
  return s.kept ? PageState::kCached : PageState::kFree;
}

bool PagePool::current(PageId page) const {
  return page.pool == pool_ && page.slot >= 0 && page.slot < capacity() &&
         slots_[static_cast<std::size_t>(page.slot)].generation == page.generation && !is_free(page.slot);
}

template <typename F>
void PagePool::change(std::int32_t slot, F&& f) {
  --counts_[static_cast<std::size_t>(state(slot))];
  f(slots_[static_cast<std::size_t>(slot)]);
  const PageState now = state(slot);
  ++counts_[static_cast<std::size_t>(now)];
  const std::uint64_t bit = std::uint64_t{1} << (slot % 64);
  std::uint64_t& word = free_bits_[static_cast<std::size_t>(slot) / 64];
  word = now == PageState::kFree ? word | bit : word & ~bit;
}

PageId PagePool::give(std::int32_t slot) {
  change(slot, [](Slot& s) {
    ++s.generation;
    s.holders = 1;
  });
  return {pool_, slot, slots_[static_cast<std::size_t>(slot)].generation};
}

bool PagePool::run_at(std::int32_t slot, std::int32_t n) const {
  if (slot < 0 || slot + n > capacity()) return false;
  for (std::int32_t i = 0; i < n; ++i) {
    if (!is_free(slot + i)) return false;
  }
  return true;
}

// First slot of the lowest run of n free slots, or -1. Whole words are skipped or taken at once: 100,000
// slots are 1,563 words, about a microsecond.
std::int32_t PagePool::first_run(std::int32_t n) const {
  std::int32_t run = 0;
  for (std::size_t w = 0; w < free_bits_.size(); ++w) {
    std::uint64_t word = free_bits_[w];
    if (word == 0) {
      run = 0;
      continue;
    }
    for (std::int32_t bit = 0; bit < 64;) {
      const std::uint64_t rest = word >> bit;
      if (rest == 0) {
        run = 0;
        break;
      }
      if (const std::int32_t zeros = std::countr_zero(rest); zeros > 0) {
        run = 0;
        bit += zeros;
        continue;
      }
      const std::int32_t ones = std::min(std::countr_one(rest), 64 - bit);
      if (run + ones >= n) return static_cast<std::int32_t>(w * 64) + bit - run;
      run += ones;
      bit += ones;
    }
  }
  return -1;
}

Expected<std::vector<PageId>> PagePool::take(std::int32_t n, std::int32_t after) {
  if (n > free())
    return Status(ErrorCode::kExhausted,
                  fmt::format("{} KV pages are needed and {} of {} are free ({} fenced)", n, free(),
                              capacity(), fenced()));
  std::vector<PageId> pages;
  if (n <= 0) return pages;
  pages.reserve(static_cast<std::size_t>(n));
  std::int32_t start = after >= 0 && run_at(after + 1, n) ? after + 1 : first_run(n);
  for (; start >= 0 && n > 0; --n) pages.push_back(give(start++));
  for (std::size_t w = 0; n > 0; ++w) {
    for (; n > 0 && free_bits_[w] != 0; --n)
      pages.push_back(give(static_cast<std::int32_t>(w * 64) + std::countr_zero(free_bits_[w])));
  }
  return pages;
}

bool PagePool::retain(PageId page) {
  if (!current(page)) return false;
  change(page.slot, [](Slot& s) { ++s.holders; });
  return true;
}

bool PagePool::release(PageId page) {
  if (!current(page) || slots_[static_cast<std::size_t>(page.slot)].holders == 0) return false;
  change(page.slot, [](Slot& s) { --s.holders; });
  return true;
}

bool PagePool::keep(PageId page) {
  if (!current(page)) return false;
  change(page.slot, [](Slot& s) { s.kept = true; });
  return true;
}

bool PagePool::forget(PageId page) {
  if (!current(page)) return false;
  change(page.slot, [](Slot& s) { s.kept = false; });
  return true;
}

bool PagePool::fence(PageId page) {
  if (!current(page)) return false;
  change(page.slot, [](Slot& s) { s.fenced = true; });
  return true;
}

bool PagePool::unfence(PageId page) {
  if (!current(page)) return false;
  change(page.slot, [](Slot& s) { s.fenced = false; });
  return true;
}

}  // namespace shoal::kv
