// The parts of the Unicode database that its normal forms need. Hangul syllables are computed and stand
// in none of these.
//
// Thread-safety: constants. Each table is sorted by its first members.

#pragma once

#include <cstdint>
#include <span>

namespace shoal::tokenizer {

struct CombiningRange {
  char32_t first, last;
  std::uint8_t combining_class;
};
struct Decomposition {
  char32_t character, first, second;  // second is 0 where the decomposition is one character
};
struct Composition {
  char32_t first, second, character;
};

// The whole compatibility decomposition: `length` characters from kCompatibilityText[begin]. Characters that
// have a canonical one are not here, but what that gives may be.
struct CompatibilityDecomposition {
  char32_t character;
  std::uint16_t begin, length;
};

extern const std::span<const CombiningRange> kCombiningRanges;
extern const std::span<const Decomposition> kDecompositions;
extern const std::span<const Composition> kCompositions;
extern const std::span<const CompatibilityDecomposition> kCompatibility;
extern const std::span<const char32_t> kCompatibilityText;

}  // namespace shoal::tokenizer
