// UTF-8 as bytes: lengths, repair, and putting a stream of byte pieces together into whole characters.
//
// Thread-safety: functions are pure; a Utf8Assembler belongs to one thread.
// Invariants: broken input is replaced as the WHATWG encoding standard and Rust's from_utf8_lossy do: one
//   U+FFFD for each maximal start of a character that cannot be completed, one for each stray byte.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace shoal::tokenizer {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

bool is_valid_utf8(std::string_view text);
// The same text where valid; broken sequences become U+FFFD.
std::string to_valid_utf8(std::string_view text);

// Bytes of the character whose first byte this is; 1 for a byte that starts none.
inline std::size_t utf8_length(char first) {
  const auto byte = static_cast<std::uint8_t>(first);
  return byte < 0xC2 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : byte < 0xF5 ? 4 : 1;
}

void append_utf8(char32_t code_point, std::string& out);
// Decodes the character at text[at], which must be valid UTF-8, and moves `at` behind it.
char32_t next_code_point(std::string_view text, std::size_t& at);

// Gives out characters as soon as their last byte is there.
class Utf8Assembler {
 public:
  // Appends to out every character that `bytes` completes, and U+FFFD for what can no longer become one.
  void push(std::string_view bytes, std::string& out);
  // Appends U+FFFD for an unfinished character, if there is one, and starts anew.
  void finish(std::string& out);
  bool empty() const { return held_.empty(); }

 private:
  std::string held_;  // at most 3 bytes: a valid, unfinished start of one character
};

}  // namespace shoal::tokenizer
