// The 256 printable characters that byte-level vocabularies write bytes with: a space is "Ġ", a line end "Ċ".
//
// Printable Latin-1 bytes stand for themselves; the other 68, in order, are U+0100 to U+0143.
//
// Thread-safety: pure functions on constant tables.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace shoal::tokenizer {

// The character that stands for a byte, as UTF-8.
std::string_view byte_character(std::uint8_t byte);
// The byte that a character stands for; nothing for a character outside the alphabet.
std::optional<std::uint8_t> character_byte(char32_t character);

// A token's bytes. Characters outside the alphabet stand for their own UTF-8, as in added tokens.
std::string decode_byte_level(std::string_view token);
// Nothing where a character is outside the alphabet.
std::optional<std::string> decode_byte_level_strict(std::string_view token);

}  // namespace shoal::tokenizer
