// Jinja's tests by name: the functions behind {{ value is name(arguments) }}.
//
// Thread-safety: the table is constant; a test runs in its rendering's thread.

#pragma once

#include <string_view>

#include "tokenizer/jinja_value.h"

namespace shoal::tokenizer::jinja {

using TestFunction = bool (*)(Heap& heap, const Value& value, const Arguments& arguments);

// Null where there is no such test.
TestFunction find_test(std::string_view name);

}  // namespace shoal::tokenizer::jinja
