// Filters that apply another filter or a test to every element: map, select, reject and their attr forms.

#include <string>
#include <unordered_map>

#include "tokenizer/jinja_error.h"
#include "tokenizer/jinja_filters.h"
#include "tokenizer/jinja_operators.h"
#include "tokenizer/jinja_repr.h"
#include "tokenizer/jinja_tests.h"

namespace shoal::tokenizer::jinja {
namespace {

// The name at the head of the arguments, taken out of them.
std::string take_name(Arguments& arguments, const char* filter, const char* what) {
  if (arguments.positional.empty()) fail(std::string(filter) + " requires " + what);
  if (!arguments.positional[0].is_text()) fail(std::string(filter) + ": " + what + " is named by a string");
  std::string name = arguments.positional[0].str();
  arguments.positional.erase(arguments.positional.begin());
  return name;
}

Value map_attribute(Heap& heap, const Value& value, Arguments& arguments) {
  Value attribute;
  Value fallback;
  arguments.take("attribute", attribute);
  arguments.take("default", fallback);
  if (!arguments.named.empty()) {
    fail("Unexpected keyword argument " + repr_text(arguments.named[0].first->bytes));
  }
  if (fallback.is_none()) fallback = Value();
  std::vector<Value> out;
  for (const Value& item : collect(heap, value))
    out.push_back(attribute_path(heap, item, attribute, fallback));
  return make_list(heap, std::move(out), ListKind::kGenerator);
}

bool names_attribute(const Arguments& arguments) {
  if (!arguments.positional.empty()) return false;
  for (const auto& [name, value] : arguments.named) {
    if (name->bytes == "attribute") return true;
  }
  return false;
}

Value map(Heap& heap, const Value& value, Arguments& arguments) {
  if (!truthy(value)) return make_list(heap, {}, ListKind::kGenerator);
  const DepthGuard guard(heap);  // map('map', 'map', ...) calls itself
  if (names_attribute(arguments)) return map_attribute(heap, value, arguments);
  const std::string name = take_name(arguments, "map", "a filter argument");
  const FilterFunction filter = find_filter(name);
  if (filter == nullptr) fail("No filter named " + repr_text(name) + ".");
  std::vector<Value> out;
  for (const Value& item : collect(heap, value)) {
    Arguments copy = arguments;  // a filter may take its arguments apart
    out.push_back(filter(heap, item, copy));
  }
  return make_list(heap, std::move(out), ListKind::kGenerator);
}

template <bool kKeep, bool kByAttribute>
Value select(Heap& heap, const Value& value, Arguments& arguments) {
  if (!truthy(value)) return make_list(heap, {}, ListKind::kGenerator);
  const DepthGuard guard(heap);
  Value attribute = None{};
  if (kByAttribute) {
    if (arguments.positional.empty()) fail("Missing parameter for attribute name");
    attribute = arguments.positional[0];
    arguments.positional.erase(arguments.positional.begin());
  }
  TestFunction test = nullptr;
  if (!arguments.positional.empty()) {
    const std::string name = take_name(arguments, "select", "a test");
    test = find_test(name);
    if (test == nullptr) fail("No test named " + repr_text(name) + ".");
  }
  std::vector<Value> kept;
  for (const Value& item : collect(heap, value)) {
    const Value subject = attribute_path(heap, item, attribute);
    const bool passes = test != nullptr ? test(heap, subject, arguments) : truthy(subject);
    if (passes == kKeep) kept.push_back(item);
  }
  return make_list(heap, std::move(kept), ListKind::kGenerator);
}

}  // namespace

FilterFunction find_select_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, FilterFunction> table = {
      {"map", map},
      {"select", select<true, false>},
      {"reject", select<false, false>},
      {"selectattr", select<true, true>},
      {"rejectattr", select<false, true>},
  };
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace shoal::tokenizer::jinja
