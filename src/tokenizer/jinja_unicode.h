// Text as Python's str sees it: characters are code points, not bytes.
//
// Thread-safety: pure functions.
// Invariants: arguments must be valid UTF-8, and results are. Offsets are bytes, indices are characters.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace shoal::tokenizer::jinja {

// Categories that Python's str.is*() methods and repr() ask about.
enum class CharClass { kLetter, kNumber, kDigit, kDecimal, kUpper, kLower, kCased, kUnprintable };

bool in_class(char32_t c, CharClass wanted);
bool is_space(char32_t c);

std::size_t count_chars(std::string_view text);
// Byte offset of the index-th character, text.size() where there are fewer.
std::size_t char_offset(std::string_view text, std::size_t index);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
// First character upper, the rest lower.
std::string capitalize(std::string_view text);
// str.title(): a letter after a non-letter is upper, all others lower.
std::string title_words(std::string_view text);

// Offset of the first occurrence at or after `from`, npos where there is none. Linear for any two texts,
// which std::string's own search is not.
std::size_t find_text(std::string_view text, std::string_view wanted, std::size_t from);

// Which ends strip() works on.
enum class Sides { kLeft, kRight, kBoth };
std::string_view strip_space(std::string_view text, Sides sides);
// Strips any of the characters of `chars`.
std::string_view strip_chars(std::string_view text, std::string_view chars, Sides sides);

}  // namespace shoal::tokenizer::jinja
