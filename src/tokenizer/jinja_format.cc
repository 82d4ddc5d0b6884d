#include "tokenizer/jinja_format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "tokenizer/jinja_error.h"
#include "tokenizer/jinja_repr.h"
#include "tokenizer/jinja_unicode.h"

namespace shoal::tokenizer::jinja {
namespace {

// Digits after the point that anything here writes; a double has at most 1,074.
constexpr std::int64_t kMaxPrecision = 1100;

std::string digits_in_base(std::uint64_t value, unsigned base, bool upper) {
  std::string out;
  do {
    out.push_back((upper ? "0123456789ABCDEF" : "0123456789abcdef")[value % base]);
    value /= base;
  } while (value > 0);
  std::reverse(out.begin(), out.end());
  return out;
}

std::string print_real(double value, char type, int precision, bool alternate) {
  const std::string format = std::string(alternate ? "%#.*" : "%.*") + type;
  // 309 digits before the point, the precision after it, sign, point and exponent.
  std::string buffer(static_cast<std::size_t>(precision) + 330, '\0');
  const int length = std::snprintf(buffer.data(), buffer.size(), format.c_str(), precision, value);
  buffer.resize(static_cast<std::size_t>(std::max(length, 0)));
  return buffer;
}

std::string unsigned_real(double value, const FormatSpec& spec) {
  if (!std::isfinite(value)) {
    const bool upper = spec.type == 'E' || spec.type == 'F' || spec.type == 'G';
    return std::isnan(value) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf");
  }
  if (spec.type == '\0' && spec.precision < 0) return repr_real(value);
  if (spec.precision > kMaxPrecision) fail("precision too big");
  int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  if (spec.type == '%') return print_real(value * 100, 'f', precision, spec.alternate) + "%";
  if (spec.type != '\0')
    return print_real(value, spec.type == 'n' ? 'g' : spec.type, precision, spec.alternate);
  precision = std::max(precision, 1);
  std::string out = print_real(value, 'g', precision, false);
  if (out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

std::string unsigned_integer(std::int64_t value, const FormatSpec& spec) {
  const std::uint64_t magnitude =
      value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  switch (spec.type) {
    case 'x':
      return (spec.alternate ? "0x" : "") + digits_in_base(magnitude, 16, false);
    case 'X':
      return (spec.alternate ? "0X" : "") + digits_in_base(magnitude, 16, true);
    case 'o':
      return (spec.alternate ? "0o" : "") + digits_in_base(magnitude, 8, false);
    case 'b':
      return (spec.alternate ? "0b" : "") + digits_in_base(magnitude, 2, false);
    default:
      return digits_in_base(magnitude, 10, false);
  }
}

void group_thousands(std::string& digits, char separator) {
  const std::size_t first = digits.find_first_not_of("0123456789");
  std::size_t at = first == std::string::npos ? digits.size() : first;
  while (at > 3) {
    at -= 3;
    digits.insert(at, 1, separator);
  }
}

bool is_real_type(char type) {
  return type != '\0' && std::string_view("eEfFgG%").find(type) != std::string_view::npos;
}

}  // namespace

std::string format_number(const Value& number, const FormatSpec& spec) {
  const bool real = !number.is_integral() || is_real_type(spec.type);
  const bool negative = real ? std::signbit(number.real_number()) : number.integral() < 0;
  std::string digits =
      real ? unsigned_real(std::fabs(number.real_number()), spec) : unsigned_integer(number.integral(), spec);
  if (spec.grouping != '\0') group_thousands(digits, spec.grouping);
  if (negative) return "-" + digits;
  return spec.sign == '-' ? digits : spec.sign + digits;
}

std::string pad(Heap& heap, std::string text, const FormatSpec& spec, char default_align) {
  const auto chars = static_cast<std::int64_t>(count_chars(text));
  if (spec.width <= chars) return text;
  const auto missing = static_cast<std::size_t>(spec.width - chars);
  heap.check_text(static_cast<std::size_t>(spec.width) * spec.fill.size());
  heap.step(missing / 16);
  const char align = spec.align != '\0' ? spec.align : default_align;
  std::size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::size_t at = 0;  // where the left padding goes
  if (align == '=' && !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ')) at = 1;
  std::string out = text.substr(0, at);
  out.reserve(text.size() + missing * spec.fill.size());
  for (std::size_t i = 0; i < left; ++i) out += spec.fill;
  out.append(text, at, std::string::npos);
  for (; left < missing; ++left) out += spec.fill;
  return out;
}

}  // namespace shoal::tokenizer::jinja
