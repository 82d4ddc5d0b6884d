#include "tokenizer/byte_alphabet.h"

#include <array>

#include "tokenizer/utf8.h"

namespace shoal::tokenizer {
namespace {

constexpr int kAlphabetEnd = 0x144;

struct Alphabet {
  std::array<std::string, 256> characters;
  std::array<std::int16_t, kAlphabetEnd> bytes;

  Alphabet() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      const char32_t character = printable ? static_cast<char32_t>(byte) : next++;
      append_utf8(character, characters[byte]);
      bytes[character] = static_cast<std::int16_t>(byte);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

std::string_view byte_character(std::uint8_t byte) { return alphabet().characters[byte]; }

std::optional<std::uint8_t> character_byte(char32_t character) {
  if (character >= kAlphabetEnd || alphabet().bytes[character] < 0) return std::nullopt;
  return static_cast<std::uint8_t>(alphabet().bytes[character]);
}

std::string decode_byte_level(std::string_view token) {
  if (!is_valid_utf8(token)) return std::string(token);
  std::string out;
  out.reserve(token.size());
  for (std::size_t at = 0; at < token.size();) {
    const std::size_t start = at;
    if (const auto byte = character_byte(next_code_point(token, at))) {
      out.push_back(static_cast<char>(*byte));
    } else {
      out += token.substr(start, at - start);
    }
  }
  return out;
}

std::optional<std::string> decode_byte_level_strict(std::string_view token) {
  if (!is_valid_utf8(token)) return std::nullopt;
  std::string out;
  out.reserve(token.size());
  for (std::size_t at = 0; at < token.size();) {
    const auto byte = character_byte(next_code_point(token, at));
    if (!byte) return std::nullopt;
    out.push_back(static_cast<char>(*byte));
  }
  return out;
}

}  // namespace shoal::tokenizer
