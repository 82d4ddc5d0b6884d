// The merges of a byte-pair encoding, and their application to one word.
//
// Thread-safety: none while adding; once built, any thread may merge.
// Invariants: merge() applies the pair of lowest rank first and the leftmost of equals, as the training did.
//   It takes O(n log n) for n symbols.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/ids.h"

namespace shoal::tokenizer {

inline constexpr TokenId kNoToken = -1;

class MergeTable {
 public:
  // expected: how many merges will be added.
  explicit MergeTable(std::size_t expected = 0);

  // left and right become `result`. The lower the rank the earlier. A pair added before keeps its rank.
  void add(TokenId left, TokenId right, std::int32_t rank, TokenId result);
  std::size_t size() const { return size_; }

  // Merges symbols in place until no pair is left. kNoToken merges with nothing.
  void merge(std::vector<TokenId>& symbols) const;

 private:
  struct Slot {
    std::uint64_t pair = kEmpty;
    std::int32_t rank = 0;
    TokenId result = kNoToken;
  };
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};  // the pair of two kNoToken

  static std::uint64_t key(TokenId left, TokenId right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t slot_of(std::uint64_t pair) const;
  const Slot* find(TokenId left, TokenId right) const;
  void grow(std::size_t capacity);
  void merge_short(std::vector<TokenId>& symbols) const;
  void merge_long(std::vector<TokenId>& symbols) const;

  std::vector<Slot> slots_;  // a power of two, at most half full
  std::size_t size_ = 0;
};

}  // namespace shoal::tokenizer
