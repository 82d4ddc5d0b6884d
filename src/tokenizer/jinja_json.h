// JSON into template values and back.
//
// Thread-safety: as the values.

#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tokenizer/jinja_value.h"

namespace shoal::tokenizer::jinja {

// Broken UTF-8 is repaired; integers beyond 64 bits become floats. Fails past kMaxNesting.
Value from_json(Heap& heap, const nlohmann::ordered_json& json);

// Python's json.dumps, as templates call it through |tojson.
struct JsonStyle {
  bool ascii_only = false;
  bool sort_keys = false;
  bool indented = false;
  std::string indent;  // one level of it, where indented
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
std::string to_json(Heap& heap, const Value& value, const JsonStyle& style);

}  // namespace shoal::tokenizer::jinja
