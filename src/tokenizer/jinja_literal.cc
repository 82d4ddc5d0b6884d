#include "tokenizer/jinja_literal.h"

#include <algorithm>
#include <charconv>

#include "tokenizer/utf8.h"

namespace shoal::tokenizer::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

int digit_value(char c) {
  if (is_digit(c)) return c - '0';
  const char lower = static_cast<char>(c | 32);
  return lower >= 'a' && lower <= 'z' ? lower - 'a' + 10 : 99;
}

// End of a run of digits of the base from `at`; single underscores may stand between them, and before the
// first where `leading`.
std::size_t digits_end(std::string_view text, std::size_t at, int base, bool leading = false) {
  bool last_digit = leading;
  while (at < text.size()) {
    if (digit_value(text[at]) < base) {
      last_digit = true;
      ++at;
    } else if (text[at] == '_' && last_digit && at + 1 < text.size() && digit_value(text[at + 1]) < base) {
      last_digit = false;
      ++at;
    } else {
      break;
    }
  }
  return at;
}

std::string without_underscores(std::string_view text) {
  std::string out(text);
  out.erase(std::remove(out.begin(), out.end(), '_'), out.end());
  return out;
}

void parse_integer(std::string_view digits, int base, NumberLiteral& number) {
  const std::string plain = without_underscores(digits);
  const auto result = std::from_chars(plain.data(), plain.data() + plain.size(), number.integer_value, base);
  number.fits = result.ec == std::errc();
}

// The end of a real literal at the start of text, 0 where it is none.
std::size_t real_end(std::string_view text) {
  std::size_t at = digits_end(text, 0, 10);
  bool real = false;
  if (at + 1 < text.size() && text[at] == '.' && is_digit(text[at + 1])) {
    at = digits_end(text, at + 1, 10);
    real = true;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    std::size_t exponent = at + 1;
    if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
    if (exponent < text.size() && is_digit(text[exponent])) {
      at = digits_end(text, exponent, 10);
      real = true;
    }
  }
  return real ? at : 0;
}

// Reads `count` hex digits at text[at] and moves behind them.
bool read_hex(std::string_view text, std::size_t& at, std::size_t count, char32_t& out) {
  if (text.size() - at < count) return false;
  out = 0;
  for (std::size_t end = at + count; at < end; ++at) {
    const int digit = digit_value(text[at]);
    if (digit >= 16) return false;
    out = out * 16 + static_cast<char32_t>(digit);
  }
  return out <= 0x10FFFF;
}

// A \u escape may be half of a surrogate pair.
bool read_surrogates(std::string_view text, std::size_t& at, char32_t& c) {
  if (c < 0xD800 || c > 0xDFFF) return true;
  char32_t low = 0;
  std::size_t ahead = at + 2;
  if (c < 0xDC00 && text.substr(at).starts_with("\\u") && read_hex(text, ahead, 4, low) && low >= 0xDC00 &&
      low <= 0xDFFF) {
    c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    at = ahead;
    return true;
  }
  return false;
}

void append_octal(std::string_view text, std::size_t& at, std::string& out) {
  char32_t value = 0;
  for (int i = 0; i < 3 && at < text.size() && text[at] >= '0' && text[at] <= '7'; ++i, ++at) {
    value = value * 8 + static_cast<char32_t>(text[at] - '0');
  }
  append_utf8(value, out);
}

}  // namespace

NumberLiteral read_number(std::string_view text, bool allow_real) {
  NumberLiteral number;
  if (const std::size_t end = allow_real ? real_end(text) : 0; end > 0) {
    const std::string plain = without_underscores(text.substr(0, end));
    number.size = end;
    number.real = true;
    // A literal beyond the range is infinity in Python; from_chars leaves the value alone there.
    number.fits =
        std::from_chars(plain.data(), plain.data() + plain.size(), number.real_value).ec == std::errc();
    return number;
  }
  if (text.size() > 2 && text[0] == '0') {
    const char mark = static_cast<char>(text[1] | 32);
    const int base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (base != 0) {
      const std::size_t end = digits_end(text, 2, base, true);
      if (end > 2) {
        number.size = end;
        parse_integer(text.substr(2, end - 2), base, number);
        return number;
      }
    }
  }
  // A zero takes only zeros: "01" is two numbers, which the parser refuses.
  number.size = text[0] == '0' ? digits_end(text, 0, 1) : digits_end(text, 0, 10);
  parse_integer(text.substr(0, number.size), 10, number);
  return number;
}

bool unescape(std::string_view text, std::string& out) {
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] != '\\' || at + 1 >= text.size()) {
      out.push_back(text[at++]);
      continue;
    }
    const char c = text[at + 1];
    at += 2;
    char32_t code = 0;
    switch (c) {
      case '\n':
        break;
      case '\\':
      case '\'':
      case '"':
        out.push_back(c);
        break;
      case 'a':
        out.push_back('\a');
        break;
      case 'b':
        out.push_back('\b');
        break;
      case 'f':
        out.push_back('\f');
        break;
      case 'n':
        out.push_back('\n');
        break;
      case 'r':
        out.push_back('\r');
        break;
      case 't':
        out.push_back('\t');
        break;
      case 'v':
        out.push_back('\v');
        break;
      case 'x':
      case 'u':
      case 'U':
        if (!read_hex(text, at, c == 'x' ? 2 : c == 'u' ? 4 : 8, code)) return false;
        if (!read_surrogates(text, at, code)) return false;
        append_utf8(code, out);
        break;
      case 'N':
        return false;  // names of characters are not known here
      default:
        if (c >= '0' && c <= '7') {
          --at;
          append_octal(text, at, out);
        } else {
          out.push_back('\\');  // unknown escapes stay as they are
          out.push_back(c);
        }
    }
  }
  return true;
}

}  // namespace shoal::tokenizer::jinja
