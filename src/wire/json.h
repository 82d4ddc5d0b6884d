// Reading JSON that came from outside: parsed once, then read field by field with types and ranges checked.
//
// Thread-safety: values; one thread at a time each.
// Ownership: a JsonDocument owns the parsed text; JsonFields and elements are views into it and must not
//   outlive it.
// Invariants:
//   1. Text that is not UTF-8, nests deeper than kMaxJsonDepth, or holds NaN, Infinity, a lone surrogate or a
//      number outside double's and 64-bit integers' range does not parse.
//   2. null is the same as absent. A field that appears twice counts with its first value.
//   3. Every failure is kInvalidArgument and names the field by its path: "messages[0].content[1].type".

#pragma once

#include <simdjson.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"
#include "core/ids.h"

namespace shoal::wire {

using JsonElement = simdjson::dom::element;

// Requests nest about 8 deep, JSON schemas of tools 20.
inline constexpr std::size_t kMaxJsonDepth = 64;

// Bounds of a number, both included unless low_open.
struct NumberRange {
  double low = -std::numeric_limits<double>::max();
  double high = std::numeric_limits<double>::max();
  bool low_open = false;
};

// "must be a number from 0 to 2": what a Status says; path: the field.
Status field_error(const std::string& path, std::string_view requirement);

// An element's value, or an error that names path.
Expected<double> json_number(JsonElement element, const std::string& path, NumberRange range = {});
// A number with a zero fraction is an integer too.
Expected<std::int64_t> json_integer(JsonElement element, const std::string& path, std::int64_t low,
                                    std::int64_t high);
Expected<bool> json_boolean(JsonElement element, const std::string& path);
Expected<std::string> json_text(JsonElement element, const std::string& path);
// Token ids: integers from 0 to 2^31 - 1, at most max_count of them.
Expected<std::vector<TokenId>> json_token_ids(JsonElement element, const std::string& path,
                                              std::size_t max_count);
// The element as JSON text, its keys in their order. Refuses text that holds half of a surrogate pair.
Expected<std::string> json_verbatim(JsonElement element, const std::string& path);

// The fields of one object. Each reader leaves `out` as it is where the field is absent.
class JsonFields {
 public:
  // path: of the object itself, empty for the body.
  JsonFields(simdjson::dom::object object, std::string path) : object_(object), path_(std::move(path)) {}

  std::string path(std::string_view name) const;
  std::optional<JsonElement> find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name).has_value(); }

  Status number(std::string_view name, NumberRange range, double& out) const;
  Status integer(std::string_view name, std::int64_t low, std::int64_t high, int& out) const;
  Status integer(std::string_view name, std::int64_t low, std::int64_t high, std::optional<int>& out) const;
  Status integer(std::string_view name, std::int64_t low, std::int64_t high,
                 std::optional<std::int64_t>& out) const;
  Status boolean(std::string_view name, bool& out) const;
  Status text(std::string_view name, std::string& out) const;
  Status text(std::string_view name, std::optional<std::string>& out) const;
  // A nested object, or nothing.
  Expected<std::optional<JsonFields>> object(std::string_view name) const;

 private:
  simdjson::dom::object object_;
  std::string path_;
};

class JsonDocument {
 public:
  static Expected<JsonDocument> parse(std::string_view bytes);

  JsonElement root() const { return root_; }
  // The body as an object, or an error.
  Expected<JsonFields> fields() const;

 private:
  JsonDocument() = default;

  std::unique_ptr<simdjson::dom::parser> parser_;
  JsonElement root_;
};

}  // namespace shoal::wire
