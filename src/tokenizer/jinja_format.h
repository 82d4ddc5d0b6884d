// Python's two ways to format text: the % operator and str.format.
//
// Thread-safety: as the values.
// Invariants: widths are checked against the Heap's limit for one text before padding is made.

#pragma once

#include <string>
#include <string_view>

#include "tokenizer/jinja_value.h"

namespace shoal::tokenizer::jinja {

// format % values: values is a tuple, a dict for %(name)s, or one value.
std::string format_percent(Heap& heap, std::string_view format, const Value& values);

// format.format(*positional, **named).
std::string format_braces(Heap& heap, std::string_view format, const Arguments& arguments);

// How one value is to be written; both notations come down to this.
struct FormatSpec {
  std::string fill = " ";
  char align = '\0';  // < > ^ = or none
  char sign = '-';    // - + or space
  bool alternate = false;
  char grouping = '\0';  // , _ or none
  std::int64_t width = 0;
  std::int64_t precision = -1;
  char type = '\0';
};

// Digits of a number in the notation of spec.type, signed, not padded.
std::string format_number(const Value& number, const FormatSpec& spec);
// Pads to spec.width characters.
std::string pad(Heap& heap, std::string text, const FormatSpec& spec, char default_align);

}  // namespace shoal::tokenizer::jinja
