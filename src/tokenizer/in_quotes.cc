#include "tokenizer/in_quotes.h"

#include <fmt/format.h>

#include <algorithm>

#include "tokenizer/utf8.h"

namespace shoal::tokenizer {
namespace {

// C0, DEL, and C1 with its two bytes (0xc2 0x80 to 0xc2 0x9f).
bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character.front());
  return first < 0x20 || first == 0x7f ||
         (first == 0xc2 && character.size() == 2 && static_cast<unsigned char>(character[1]) < 0xa0);
}

}  // namespace

std::string in_quotes(std::string_view text, std::size_t most) {
  std::string out = "'";
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = std::min(utf8_length(text[at]), text.size() - at);
    std::string_view character = text.substr(at, std::max<std::size_t>(length, 1));
    const bool valid = is_valid_utf8(character);
    if (!valid) character = text.substr(at, 1);
    if (at + character.size() > most) return out + "...'";
    if (valid && !is_control(character)) {
      out += character;
    } else {
      for (const char byte : character) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    }
    at += character.size();
  }
  return out + "'";
}

}  // namespace shoal::tokenizer
