#include "wire/json.h"

#include <fmt/format.h>

#include <cmath>

namespace shoal::wire {

namespace {

std::string range_text(NumberRange range) {
  constexpr double kMax = std::numeric_limits<double>::max();
  if (range.low == -kMax && range.high == kMax) return "must be a number";
  if (range.high == kMax) {
    return fmt::format("must be a number {} {}", range.low_open ? "above" : "of at least", range.low);
  }
  return fmt::format("must be a number {} {} to {}", range.low_open ? "above" : "from", range.low,
                     range.high);
}

std::string range_text(std::int64_t low, std::int64_t high) {
  // Bounds that only say "fits the type" would teach the client nothing.
  if (high >= std::numeric_limits<std::int32_t>::max()) {
    if (low == std::numeric_limits<std::int64_t>::min()) return "must be a 64-bit integer";
    if (high == std::numeric_limits<std::int32_t>::max()) {
      return fmt::format("must be an integer from {} to 2147483647", low);
    }
  }
  return fmt::format("must be an integer from {} to {}", low, high);
}

Status parse_error(simdjson::error_code error) {
  switch (error) {
    case simdjson::DEPTH_ERROR:
      return {ErrorCode::kInvalidArgument,
              fmt::format("the request's JSON nests deeper than {} levels", kMaxJsonDepth)};
    case simdjson::UTF8_ERROR:
      return {ErrorCode::kInvalidArgument, "the request's body is not valid UTF-8"};
    case simdjson::EMPTY:
      return {ErrorCode::kInvalidArgument, "the request's body is empty; it must be JSON"};
    case simdjson::MEMALLOC:
      return {ErrorCode::kInternal, "no memory to parse the request's body"};
    case simdjson::NUMBER_ERROR:
      return {ErrorCode::kInvalidArgument, "the request's JSON holds a malformed or too large number"};
    default:
      return {ErrorCode::kInvalidArgument,
              fmt::format("the request's body is not valid JSON: {}", simdjson::error_message(error))};
  }
}

}  // namespace

Status field_error(const std::string& path, std::string_view requirement) {
  return {ErrorCode::kInvalidArgument, fmt::format("{} {}", path, requirement), path};
}

Expected<double> json_number(JsonElement element, const std::string& path, NumberRange range) {
  double value = 0;
  if (element.get_double().get(value) != simdjson::SUCCESS || !std::isfinite(value) || value < range.low ||
      value > range.high || (range.low_open && value == range.low)) {
    return field_error(path, range_text(range));
  }
  return value;
}

Expected<std::int64_t> json_integer(JsonElement element, const std::string& path, std::int64_t low,
                                    std::int64_t high) {
  std::int64_t value = 0;
  if (element.get_int64().get(value) != simdjson::SUCCESS) {
    double number = 0;
    constexpr double kExact = 9007199254740992.0;  // 2^53: above it a double no longer counts in ones
    if (!element.is_double() || element.get_double().get(number) != simdjson::SUCCESS ||
        std::trunc(number) != number || std::abs(number) > kExact) {
      return field_error(path, range_text(low, high));
    }
    value = static_cast<std::int64_t>(number);
  }
  if (value < low || value > high) return field_error(path, range_text(low, high));
  return value;
}

Expected<bool> json_boolean(JsonElement element, const std::string& path) {
  bool value = false;
  if (element.get_bool().get(value) != simdjson::SUCCESS) return field_error(path, "must be true or false");
  return value;
}

Expected<std::string> json_text(JsonElement element, const std::string& path) {
  std::string_view value;
  if (element.get_string().get(value) != simdjson::SUCCESS) return field_error(path, "must be a string");
  // simdjson 3.0 lets the escape of a lone low surrogate through as three bytes that are no UTF-8.
  if (!simdjson::validate_utf8(value)) return field_error(path, "holds half of a surrogate pair");
  return std::string(value);
}

Expected<std::vector<TokenId>> json_token_ids(JsonElement element, const std::string& path,
                                              std::size_t max_count) {
  simdjson::dom::array array;
  if (element.get_array().get(array) != simdjson::SUCCESS)
    return field_error(path, "must be a list of token ids");
  std::vector<TokenId> ids;
  for (const JsonElement item : array) {
    if (ids.size() == max_count)
      return field_error(path, fmt::format("holds more than {} token ids", max_count));
    std::int64_t id = 0;
    if (item.get_int64().get(id) != simdjson::SUCCESS || id < 0 || id > std::numeric_limits<TokenId>::max()) {
      return field_error(fmt::format("{}[{}]", path, ids.size()),
                         "must be a token id: an integer from 0 to 2147483647");
    }
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

Expected<std::string> json_verbatim(JsonElement element, const std::string& path) {
  std::string text = simdjson::minify(element);
  // As in json_text(); keys are checked along.
  if (!simdjson::validate_utf8(text)) return field_error(path, "holds half of a surrogate pair");
  return text;
}

std::string JsonFields::path(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

std::optional<JsonElement> JsonFields::find(std::string_view name) const {
  JsonElement element;
  if (object_.at_key(name).get(element) != simdjson::SUCCESS || element.is_null()) return std::nullopt;
  return element;
}

Status JsonFields::number(std::string_view name, NumberRange range, double& out) const {
  if (const auto element = find(name)) {
    SHOAL_ASSIGN(value, json_number(*element, path(name), range));
    out = value;
  }
  return {};
}

Status JsonFields::integer(std::string_view name, std::int64_t low, std::int64_t high,
                           std::optional<std::int64_t>& out) const {
  if (const auto element = find(name)) {
    SHOAL_ASSIGN(value, json_integer(*element, path(name), low, high));
    out = value;
  }
  return {};
}

Status JsonFields::integer(std::string_view name, std::int64_t low, std::int64_t high,
                           std::optional<int>& out) const {
  std::optional<std::int64_t> wide;
  SHOAL_TRY(integer(name, low, high, wide));
  if (wide) out = static_cast<int>(*wide);
  return {};
}

Status JsonFields::integer(std::string_view name, std::int64_t low, std::int64_t high, int& out) const {
  std::optional<std::int64_t> wide;
  SHOAL_TRY(integer(name, low, high, wide));
  if (wide) out = static_cast<int>(*wide);
  return {};
}

Status JsonFields::boolean(std::string_view name, bool& out) const {
  if (const auto element = find(name)) {
    SHOAL_ASSIGN(value, json_boolean(*element, path(name)));
    out = value;
  }
  return {};
}

Status JsonFields::text(std::string_view name, std::optional<std::string>& out) const {
  if (const auto element = find(name)) {
    SHOAL_ASSIGN(value, json_text(*element, path(name)));
    out = std::move(value);
  }
  return {};
}

Status JsonFields::text(std::string_view name, std::string& out) const {
  if (const auto element = find(name)) {
    SHOAL_ASSIGN(value, json_text(*element, path(name)));
    out = std::move(value);
  }
  return {};
}

Expected<std::optional<JsonFields>> JsonFields::object(std::string_view name) const {
  const auto element = find(name);
  if (!element) return std::optional<JsonFields>();
  simdjson::dom::object inner;
  if (element->get_object().get(inner) != simdjson::SUCCESS)
    return field_error(path(name), "must be an object");
  return std::optional<JsonFields>(JsonFields(inner, path(name)));
}

Expected<JsonDocument> JsonDocument::parse(std::string_view bytes) {
  JsonDocument document;
  document.parser_ = std::make_unique<simdjson::dom::parser>();
  if (document.parser_->allocate(bytes.size() + 1, kMaxJsonDepth) != simdjson::SUCCESS) {
    return parse_error(simdjson::MEMALLOC);
  }
  const auto error = document.parser_->parse(bytes.data(), bytes.size(), true).get(document.root_);
  if (error != simdjson::SUCCESS) return parse_error(error);
  return document;
}

Expected<JsonFields> JsonDocument::fields() const {
  simdjson::dom::object object;
  if (root_.get_object().get(object) != simdjson::SUCCESS) {
    return Status(ErrorCode::kInvalidArgument, "the request's body must be a JSON object");
  }
  return JsonFields(object, {});
}

}  // namespace shoal::wire
