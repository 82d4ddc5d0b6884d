// The functions every template finds: range, dict, namespace, cycler, joiner, raise_exception, strftime_now.
//
// Thread-safety: one rendering's thread. strftime_now reads SOURCE_DATE_EPOCH (seconds since 1970, UTC) where
//   it is set, the machine's local time otherwise.
// Known gap: lipsum.

#pragma once

#include <string_view>

#include "tokenizer/jinja_value.h"

namespace shoal::tokenizer::jinja {

// Null where there is no global of that name.
Callable* make_global(Heap& heap, std::string_view name);

// A function without state of its own as a value.
using PlainFunction = Value (*)(Heap& heap, Arguments& arguments);

}  // namespace shoal::tokenizer::jinja
