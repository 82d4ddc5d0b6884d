// Reading fields of a tokenizer.json, with errors that name the file and the field.
//
// Thread-safety: pure functions on a parsed document.
// Ownership: strings read are copies; elements are views into the document.

#pragma once

#include <simdjson.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "core/expected.h"

namespace shoal::tokenizer {

using JsonElement = simdjson::dom::element;

// "FILE: WHAT", of kind kCorrupt or kUnsupported.
inline Status hf_corrupt(std::string_view source, std::string_view what) {
  return Status(ErrorCode::kCorrupt, std::string(source) + ": " + std::string(what));
}
inline Status hf_unsupported(std::string_view source, std::string_view what) {
  return Status(ErrorCode::kUnsupported, std::string(source) + ": " + std::string(what));
}

inline bool json_has(JsonElement object, std::string_view key) {
  JsonElement value;
  return object[key].get(value) == simdjson::SUCCESS && !value.is_null();
}

// The fallback where the field is absent, null or of another type.
inline bool json_bool(JsonElement object, std::string_view key, bool fallback) {
  bool value = fallback;
  return object[key].get(value) == simdjson::SUCCESS ? value : fallback;
}
inline std::int64_t json_int(JsonElement object, std::string_view key, std::int64_t fallback) {
  std::int64_t value = fallback;
  return object[key].get(value) == simdjson::SUCCESS ? value : fallback;
}
inline std::string json_string(JsonElement object, std::string_view key, std::string_view fallback = "") {
  std::string_view value;
  return std::string(object[key].get(value) == simdjson::SUCCESS ? value : fallback);
}

}  // namespace shoal::tokenizer
