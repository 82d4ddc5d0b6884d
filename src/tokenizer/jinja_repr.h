// Values as text: what {{ value }} prints, and Python's repr of it.
//
// Thread-safety: as the values.

#pragma once

#include <string>
#include <string_view>

#include "tokenizer/jinja_value.h"

namespace shoal::tokenizer::jinja {

// Appends str(value) to out; nothing for undefined.
void append_str(Heap& heap, const Value& value, Output& out);
std::string str_of(Heap& heap, const Value& value);
// The value's own text where it is one, a new one otherwise.
Text text_of(Heap& heap, const Value& value);

std::string repr_of(Heap& heap, const Value& value);
// The text in Python's quotes.
std::string repr_text(std::string_view text);
// The shortest digits that read back as the same double, written as Python does: 1.0, 1e+16, nan.
std::string repr_real(double value);

// &, <, >, ' and " as HTML entities.
std::string escape_html(std::string_view text);

}  // namespace shoal::tokenizer::jinja
