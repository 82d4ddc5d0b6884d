// Filters that make numbers, and the default.

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>

#include "tokenizer/jinja_arguments.h"
#include "tokenizer/jinja_error.h"
#include "tokenizer/jinja_filters.h"
#include "tokenizer/jinja_format.h"
#include "tokenizer/jinja_operators.h"
#include "tokenizer/jinja_unicode.h"

namespace shoal::tokenizer::jinja {
namespace {

// Python lets one underscore stand between two digits.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out.push_back(text[i]);
    } else if (i == 0 || i + 1 == text.size() || text[i + 1] == '_') {
      return std::nullopt;
    }
  }
  return out;
}

std::optional<std::int64_t> parse_integer(std::string_view text, int base) {
  text = strip_space(text, Sides::kBoth);
  const std::optional<std::string> digits = without_underscores(text);
  if (!digits) return std::nullopt;
  text = *digits;
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  if (text.size() > 2 && text[0] == '0') {
    const char mark = static_cast<char>(text[1] | 32);
    const int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked != 0 && (base == marked || base == 0)) {
      base = marked;
      text.remove_prefix(2);
    }
  }
  if (base == 0) base = 10;
  std::uint64_t magnitude = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), magnitude, base);
  if (text.empty() || result.ec == std::errc::invalid_argument || result.ptr != text.data() + text.size()) {
    return std::nullopt;
  }
  const std::uint64_t limit = std::numeric_limits<std::int64_t>::max();
  if (result.ec != std::errc() || magnitude > limit) fail("integer result is beyond 64 bits");
  const auto value = static_cast<std::int64_t>(magnitude);
  return negative ? -value : value;
}

std::optional<double> parse_real(std::string_view text) {
  const std::optional<std::string> digits = without_underscores(strip_space(text, Sides::kBoth));
  if (!digits) return std::nullopt;
  std::string_view rest = *digits;
  if (!rest.empty() && rest[0] == '+') rest.remove_prefix(1);
  if (rest.empty() || rest[0] == '+') return std::nullopt;
  double value = 0;
  const auto result = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (result.ptr != rest.data() + rest.size() || result.ec == std::errc::invalid_argument)
    return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) {
    // Too large or too small: the exponent's sign tells which.
    const bool small = rest.find("e-") != std::string_view::npos || rest.find("E-") != std::string_view::npos;
    value = small ? 0.0 : std::numeric_limits<double>::infinity();
    if (rest[0] == '-') value = -value;
  }
  return value;
}

std::optional<std::int64_t> truncated(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  if (std::fabs(value) >= 9.2e18) fail("integer result is beyond 64 bits");
  return static_cast<std::int64_t>(value);
}

Value to_int(Heap&, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "int", {"default", "base"});
  const Value fallback = parameters.at_or(0, Value::integer(0));
  require_defined(value);
  if (value.is_integral()) return Value::integer(value.integral());
  std::optional<double> real;
  if (value.is_text()) {
    const std::int64_t base = parameters.integer_or(1, 10);
    if (base != 0 && (base < 2 || base > 36)) return fallback;
    if (const auto whole = parse_integer(value.str(), static_cast<int>(base))) return Value::integer(*whole);
    real = parse_real(value.str());
  } else if (value.is_number()) {
    real = value.real_number();
  }
  const std::optional<std::int64_t> whole = real ? truncated(*real) : std::nullopt;
  return whole ? Value::integer(*whole) : fallback;
}

Value to_float(Heap&, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "float", {"default"});
  require_defined(value);
  if (value.is_number()) return Value::real(value.real_number());
  const std::optional<double> real = value.is_text() ? parse_real(value.str()) : std::nullopt;
  return real ? Value::real(*real) : parameters.at_or(0, Value::real(0.0));
}

Value absolute(Heap&, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "abs", {});
  require_defined(value);
  if (value.is_integral()) return value.integral() < 0 ? negate(value) : positive(value);
  if (value.is_number()) return Value::real(std::fabs(value.real_number()));
  fail(std::string("bad operand type for abs(): '") + type_name(value) + "'");
}

// Python's round(): exact decimal digits of the double, ties to even.
double round_half_even(double value, std::int64_t digits) {
  if (!std::isfinite(value) || digits > 330) return value;
  if (digits >= 0) {
    FormatSpec spec;
    spec.type = 'f';
    spec.precision = digits;
    return *parse_real(format_number(Value::real(value), spec));
  }
  if (digits < -308) return 0.0 * value;
  const double scale = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(value / scale) * scale;
}

std::int64_t round_integer(std::int64_t value, std::int64_t digits) {
  if (digits >= 0) return value;
  if (digits < -18) return 0;
  std::int64_t scale = 1;
  for (; digits < 0; ++digits) scale *= 10;
  const std::int64_t rest = ((value % scale) + scale) % scale;
  std::int64_t low = 0;
  if (__builtin_sub_overflow(value, rest, &low)) fail("integer result is beyond 64 bits");
  const bool up = rest > scale / 2 || (rest == scale / 2 && (low / scale) % 2 != 0);
  if (up && __builtin_add_overflow(low, scale, &low)) fail("integer result is beyond 64 bits");
  return low;
}

Value round_value(Heap&, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "round", {"precision", "method"});
  const std::int64_t precision = parameters.integer_or(0, 0);
  const std::string method = parameters.has(1) ? parameters.text(1) : "common";
  require_defined(value);
  if (!value.is_number()) fail(std::string("type ") + type_name(value) + " doesn't define __round__ method");
  if (method == "common") {
    if (value.is_integral()) return Value::integer(round_integer(value.integral(), precision));
    return Value::real(round_half_even(value.real_number(), precision));
  }
  if (method != "ceil" && method != "floor") fail("method must be common, ceil or floor");
  if (precision < -300 || precision > 300) fail("round: the precision is out of range");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = value.real_number() * scale;
  if (!std::isfinite(scaled)) fail("cannot convert float infinity to integer");
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value file_size(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "filesizeformat", {"binary"});
  require_defined(value);
  std::optional<double> number;
  if (value.is_number()) number = value.real_number();
  if (value.is_text()) number = parse_real(value.str());
  if (!number) fail(std::string("filesizeformat takes a number, not ") + type_name(value));
  const double bytes = *number;
  const bool binary = parameters.flag_or(0, false);
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return make_text(heap, "1 Byte");
  if (!(bytes >= base)) {
    const std::optional<std::int64_t> whole = truncated(bytes);
    if (!whole) fail("cannot convert float NaN to integer");
    return make_text(heap, std::to_string(*whole) + " Bytes");
  }
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base * base;
  std::size_t i = 0;
  for (; i + 1 < kPrefixes.size() && bytes >= unit; ++i) unit *= base;
  FormatSpec spec;
  spec.type = 'f';
  spec.precision = 1;
  const char prefix = binary && i == 0 ? 'K' : kPrefixes[i];
  return make_text(
      heap, format_number(Value::real(base * bytes / unit), spec) + " " + prefix + (binary ? "iB" : "B"));
}

Value default_value(Heap& heap, const Value& value, Arguments& arguments) {
  const Parameters parameters(arguments, "default", {"default_value", "boolean"});
  const bool use = value.is_undefined() || (parameters.flag_or(1, false) && !truthy(value));
  return use ? (parameters.has(0) ? parameters.at(0) : make_text(heap, "")) : value;
}

}  // namespace

FilterFunction find_number_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, FilterFunction> table = {
      {"int", to_int},        {"float", to_float},           {"abs", absolute},
      {"round", round_value}, {"filesizeformat", file_size}, {"default", default_value},
      {"d", default_value},
  };
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace shoal::tokenizer::jinja
