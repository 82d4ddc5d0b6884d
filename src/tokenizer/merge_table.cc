#include "tokenizer/merge_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <queue>

namespace shoal::tokenizer {
namespace {

// Words of up to this many symbols are merged by scanning: no heap is faster than 32 numbers in two cache
// lines.
constexpr std::size_t kShort = 32;
constexpr std::int32_t kNever = std::numeric_limits<std::int32_t>::max();

}  // namespace

MergeTable::MergeTable(std::size_t expected) { grow(std::bit_ceil(std::max<std::size_t>(16, expected * 2))); }

std::size_t MergeTable::slot_of(std::uint64_t pair) const {
  const std::size_t mask = slots_.size() - 1;
  // Fibonacci hashing: the high bits of the product are the well mixed ones.
  std::size_t at = static_cast<std::size_t>(pair * 0x9E3779B97F4A7C15ull >> 24) & mask;
  while (slots_[at].pair != kEmpty && slots_[at].pair != pair) at = (at + 1) & mask;
  return at;
}

void MergeTable::grow(std::size_t capacity) {
  std::vector<Slot> old(capacity);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.pair != kEmpty) slots_[slot_of(slot.pair)] = slot;
  }
}

void MergeTable::add(TokenId left, TokenId right, std::int32_t rank, TokenId result) {
  if ((size_ + 1) * 2 > slots_.size()) grow(slots_.size() * 2);
  Slot& slot = slots_[slot_of(key(left, right))];
  if (slot.pair != kEmpty) return;
  slot = {key(left, right), rank, result};
  ++size_;
}

const MergeTable::Slot* MergeTable::find(TokenId left, TokenId right) const {
  if (left < 0 || right < 0) return nullptr;
  const Slot& slot = slots_[slot_of(key(left, right))];
  return slot.pair == kEmpty ? nullptr : &slot;
}

void MergeTable::merge(std::vector<TokenId>& symbols) const {
  if (symbols.size() < 2) return;
  if (symbols.size() <= kShort) {
    merge_short(symbols);
  } else {
    merge_long(symbols);
  }
}

void MergeTable::merge_short(std::vector<TokenId>& symbols) const {
  std::size_t n = symbols.size();
  std::array<std::int32_t, kShort> ranks;  // of the pair that starts here
  std::array<TokenId, kShort> results;
  const auto look = [&](std::size_t i) {
    const Slot* slot = i + 1 < n ? find(symbols[i], symbols[i + 1]) : nullptr;
    ranks[i] = slot ? slot->rank : kNever;
    results[i] = slot ? slot->result : kNoToken;
  };
  for (std::size_t i = 0; i < n; ++i) look(i);
  while (n > 1) {
    const auto best =
        static_cast<std::size_t>(std::min_element(ranks.begin(), ranks.begin() + n) - ranks.begin());
    if (ranks[best] == kNever) break;
    symbols[best] = results[best];
    std::copy(symbols.begin() + best + 2, symbols.begin() + n, symbols.begin() + best + 1);
    std::copy(ranks.begin() + best + 2, ranks.begin() + n, ranks.begin() + best + 1);
    std::copy(results.begin() + best + 2, results.begin() + n, results.begin() + best + 1);
    --n;
    look(best);
    if (best > 0) look(best - 1);
  }
  symbols.resize(n);
}

void MergeTable::merge_long(std::vector<TokenId>& symbols) const {
  struct Candidate {
    std::int32_t rank;
    std::uint32_t left;   // index of the left symbol
    TokenId left_symbol;  // what the two were when this was queued: a changed one makes it void
    TokenId right_symbol;
    TokenId result;
  };
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank > b.rank || (a.rank == b.rank && a.left > b.left);
  };
  constexpr std::uint32_t kEnd = std::numeric_limits<std::uint32_t>::max();
  const auto n = static_cast<std::uint32_t>(symbols.size());
  std::vector<std::uint32_t> next(n), previous(n);
  std::vector<bool> gone(n);
  std::priority_queue<Candidate, std::vector<Candidate>, decltype(later)> queue(later);
  const auto consider = [&](std::uint32_t left) {
    if (left == kEnd || next[left] == kEnd) return;
    if (const Slot* slot = find(symbols[left], symbols[next[left]])) {
      queue.push({slot->rank, left, symbols[left], symbols[next[left]], slot->result});
    }
  };
  for (std::uint32_t i = 0; i < n; ++i) {
    next[i] = i + 1 < n ? i + 1 : kEnd;
    previous[i] = i > 0 ? i - 1 : kEnd;
  }
  for (std::uint32_t i = 0; i < n; ++i) consider(i);
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    if (gone[top.left] || symbols[top.left] != top.left_symbol) continue;
    const std::uint32_t right = next[top.left];
    if (right == kEnd || symbols[right] != top.right_symbol) continue;
    symbols[top.left] = top.result;
    gone[right] = true;
    next[top.left] = next[right];
    if (next[right] != kEnd) previous[next[right]] = top.left;
    consider(previous[top.left]);
    consider(top.left);
  }
  std::size_t out = 0;
  for (std::uint32_t i = 0; i != kEnd; i = next[i]) symbols[out++] = symbols[i];
  symbols.resize(out);
}

}  // namespace shoal::tokenizer
