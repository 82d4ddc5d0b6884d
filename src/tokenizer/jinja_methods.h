// The methods of texts, lists and dicts that templates may call: Python's, by Python's names.
//
// Thread-safety: the tables are constant; a method runs in its rendering's thread.

#pragma once

#include <string_view>

#include "tokenizer/jinja_value.h"

namespace shoal::tokenizer::jinja {

using MethodFunction = Value (*)(Heap& heap, const Value& self, Arguments& arguments);

// The method of that name for the type of self, or null.
MethodFunction find_method(const Value& self, std::string_view name);

// The tables behind find_method, one for each type.
MethodFunction find_text_method(std::string_view name);
MethodFunction find_list_method(std::string_view name);
MethodFunction find_tuple_method(std::string_view name);
MethodFunction find_dict_method(std::string_view name);

// self.name as a value of its own, to be called later.
Value bind_method(Heap& heap, const Value& self, MethodFunction method, const Text& name);

}  // namespace shoal::tokenizer::jinja
