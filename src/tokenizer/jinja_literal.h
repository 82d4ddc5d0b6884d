// Number and string literals as Jinja reads them.
//
// Thread-safety: pure functions.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace shoal::tokenizer::jinja {

struct NumberLiteral {
  std::size_t size = 0;  // bytes of the literal
  bool real = false;
  bool fits = true;  // false where an integer is beyond 64 bits
  std::int64_t integer_value = 0;
  double real_value = 0;
};

// The number that text begins with; its first character is a digit. allow_real: false after a dot, where
// "0.1" is two subscripts.
NumberLiteral read_number(std::string_view text, bool allow_real);

// Resolves Python's escapes. False where one is broken.
bool unescape(std::string_view text, std::string& out);

}  // namespace shoal::tokenizer::jinja
