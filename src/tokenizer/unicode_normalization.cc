#include "tokenizer/unicode_normalization.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tokenizer/unicode_normalization_table.h"
#include "tokenizer/utf8.h"

namespace shoal::tokenizer {
namespace {

// Hangul by arithmetic, as in chapter 3.12 of the Unicode standard.
constexpr char32_t kSyllables = 0xAC00, kLeading = 0x1100, kVowels = 0x1161, kTrailing = 0x11A7;
constexpr char32_t kLeadingCount = 19, kVowelCount = 21, kTrailingCount = 28;
constexpr char32_t kSyllableCount = kLeadingCount * kVowelCount * kTrailingCount;

struct Mark {
  char32_t character;
  std::uint8_t combining_class;
};

std::uint8_t combining_class(char32_t c) {
  if (c < 0x300) return 0;
  const auto at =
      std::upper_bound(kCombiningRanges.begin(), kCombiningRanges.end(), c,
                       [](char32_t value, const CombiningRange& range) { return value < range.first; });
  return at != kCombiningRanges.begin() && c <= std::prev(at)->last ? std::prev(at)->combining_class : 0;
}

// Appends the characters of the compatibility decomposition; false where there is none.
bool decompose_compatibility(char32_t c, std::vector<Mark>& out) {
  if (c < 0xA0) return false;
  const auto at = std::lower_bound(
      kCompatibility.begin(), kCompatibility.end(), c,
      [](const CompatibilityDecomposition& d, char32_t value) { return d.character < value; });
  if (at == kCompatibility.end() || at->character != c) return false;
  for (const char32_t part : kCompatibilityText.subspan(at->begin, at->length))
    out.push_back({part, combining_class(part)});
  return true;
}

// Decompositions nest at most a few deep: each step is one of a fixed table without cycles.
void decompose(char32_t c, bool compatibility, std::vector<Mark>& out) {
  if (c >= kSyllables && c < kSyllables + kSyllableCount) {
    const char32_t index = c - kSyllables;
    out.push_back({kLeading + index / (kVowelCount * kTrailingCount), 0});
    out.push_back({kVowels + index % (kVowelCount * kTrailingCount) / kTrailingCount, 0});
    if (index % kTrailingCount != 0) out.push_back({kTrailing + index % kTrailingCount, 0});
    return;
  }
  const auto at =
      c < 0xC0 ? kDecompositions.end()
               : std::lower_bound(kDecompositions.begin(), kDecompositions.end(), c,
                                  [](const Decomposition& d, char32_t value) { return d.character < value; });
  if (at == kDecompositions.end() || at->character != c) {
    if (!compatibility || !decompose_compatibility(c, out)) out.push_back({c, combining_class(c)});
    return;
  }
  decompose(at->first, compatibility, out);
  if (at->second != 0) decompose(at->second, compatibility, out);
}

// 0 where the two do not compose.
char32_t compose(char32_t first, char32_t second) {
  if (first >= kLeading && first < kLeading + kLeadingCount && second >= kVowels &&
      second < kVowels + kVowelCount) {
    return kSyllables + ((first - kLeading) * kVowelCount + (second - kVowels)) * kTrailingCount;
  }
  if (first >= kSyllables && first < kSyllables + kSyllableCount &&
      (first - kSyllables) % kTrailingCount == 0 && second > kTrailing &&
      second < kTrailing + kTrailingCount) {
    return first + (second - kTrailing);
  }
  const auto at = std::lower_bound(kCompositions.begin(), kCompositions.end(), std::pair(first, second),
                                   [](const Composition& c, const std::pair<char32_t, char32_t>& value) {
                                     return std::pair(c.first, c.second) < value;
                                   });
  return at != kCompositions.end() && at->first == first && at->second == second ? at->character : 0;
}

void sort_marks(std::vector<Mark>& marks) {
  for (auto at = marks.begin(); at != marks.end();) {
    if (at->combining_class == 0) {
      ++at;
      continue;
    }
    const auto end = std::find_if(at, marks.end(), [](const Mark& m) { return m.combining_class == 0; });
    std::stable_sort(at, end,
                     [](const Mark& a, const Mark& b) { return a.combining_class < b.combining_class; });
    at = end;
  }
}

std::vector<Mark> compose_all(const std::vector<Mark>& marks) {
  std::vector<Mark> composed;
  composed.reserve(marks.size());
  std::size_t starter = SIZE_MAX;  // index in composed of the last character that others may join
  for (const Mark& mark : marks) {
    if (starter != SIZE_MAX) {
      const Mark& last = composed.back();
      const bool adjacent = composed.size() - 1 == starter;
      const bool blocked =
          !adjacent && (last.combining_class == 0 || last.combining_class >= mark.combining_class);
      if (const char32_t joined = blocked ? 0 : compose(composed[starter].character, mark.character)) {
        composed[starter].character = joined;
        continue;
      }
    }
    if (mark.combining_class == 0) starter = composed.size();
    composed.push_back(mark);
  }
  return composed;
}

}  // namespace

std::string normalize(std::string_view text, NormalForm form) {
  // The first byte of what may change: nothing before U+0300 composes with or is changed by what stands
  // before it; letters with accents decompose from U+00C0 on, compatibility characters begin at U+00A0.
  const std::uint8_t first = form == NormalForm::kNfc ? 0xCC : form == NormalForm::kNfd ? 0xC3 : 0xC2;
  if (std::all_of(text.begin(), text.end(), [&](char c) { return static_cast<std::uint8_t>(c) < first; })) {
    return std::string(text);
  }
  const bool compatibility = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  std::vector<Mark> marks;
  marks.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) decompose(next_code_point(text, at), compatibility, marks);
  sort_marks(marks);
  if (form == NormalForm::kNfc || form == NormalForm::kNfkc) marks = compose_all(marks);
  std::string out;
  out.reserve(text.size());
  for (const Mark& mark : marks) append_utf8(mark.character, out);
  return out;
}

}  // namespace shoal::tokenizer
