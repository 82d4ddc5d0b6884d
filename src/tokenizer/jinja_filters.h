// Jinja's filters by name: the functions behind {{ value | name(arguments) }}.
//
// Thread-safety: the tables are constant; a filter runs in its rendering's thread.
// Known gaps: random, urlize, xmlattr, pprint and wordwrap, which no chat template needs; using one fails.

#pragma once

#include <string_view>

#include "tokenizer/jinja_value.h"

namespace shoal::tokenizer::jinja {

using FilterFunction = Value (*)(Heap& heap, const Value& value, Arguments& arguments);

// Null where there is no such filter.
FilterFunction find_filter(std::string_view name);

// The tables behind it.
FilterFunction find_text_filter(std::string_view name);
FilterFunction find_number_filter(std::string_view name);
FilterFunction find_sequence_filter(std::string_view name);
FilterFunction find_select_filter(std::string_view name);

// value.a.b.0 for the attribute "a.b.0", as map, sort, groupby and the like take it; `fallback` (where not
// undefined) stands in for what is missing.
Value attribute_path(Heap& heap, Value value, const Value& attribute, const Value& fallback = {});
// A text in lower case, anything else as it is.
Value ignore_case(Heap& heap, const Value& value);

}  // namespace shoal::tokenizer::jinja
