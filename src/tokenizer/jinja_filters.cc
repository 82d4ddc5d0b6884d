#include "tokenizer/jinja_filters.h"

#include <algorithm>

#include "tokenizer/jinja_operators.h"
#include "tokenizer/jinja_unicode.h"

namespace shoal::tokenizer::jinja {

FilterFunction find_filter(std::string_view name) {
  if (const FilterFunction found = find_text_filter(name)) return found;
  if (const FilterFunction found = find_sequence_filter(name)) return found;
  if (const FilterFunction found = find_select_filter(name)) return found;
  return find_number_filter(name);
}

Value attribute_path(Heap& heap, Value value, const Value& attribute, const Value& fallback) {
  const auto follow = [&](const Value& key) {
    value = get_item(heap, value, key);
    if (value.is_undefined() && !fallback.is_undefined()) value = fallback;
  };
  if (attribute.is_none() || attribute.is_undefined()) return value;
  if (!attribute.is_text()) {
    follow(attribute);
    return value;
  }
  std::string_view path = attribute.str();
  for (bool more = true; more;) {
    const std::size_t dot = path.find('.');
    more = dot != std::string_view::npos;
    const std::string_view part = path.substr(0, dot);
    if (more) path.remove_prefix(dot + 1);
    const bool number = !part.empty() && part.size() < 10 &&
                        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    follow(number ? Value::integer(std::stoll(std::string(part))) : make_text(heap, std::string(part)));
  }
  return value;
}

Value ignore_case(Heap& heap, const Value& value) {
  return value.is_text() ? make_text(heap, to_lower(value.str())) : value;
}

}  // namespace shoal::tokenizer::jinja
