#include "formats/json_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "formats/gguf_file.h"

namespace shoal::formats {

Expected<JsonFile> JsonFile::parse(std::string_view text, std::string name) {
  JsonFile file;
  file.name_ = std::move(name);
  file.parser_ = std::make_unique<simdjson::dom::parser>();
  const auto error = file.parser_->parse(text.data(), text.size()).get_object().get(file.root_);
  if (error != simdjson::SUCCESS) {
    return Status(ErrorCode::kCorrupt,
                  fmt::format("{}: is no JSON object: {}", file.name_, simdjson::error_message(error)));
  }
  return file;
}

bool JsonFields::has(std::string_view field) const {
  simdjson::dom::element value;
  return object_[field].get(value) == simdjson::SUCCESS && !value.is_null();
}

bool JsonFields::mentions(std::string_view field) const {
  return object_[field].error() == simdjson::SUCCESS;
}

Status JsonFields::wrong(std::string_view field, std::string_view expected) const {
  simdjson::dom::element value;
  if (!has(field) || object_[field].get(value) != simdjson::SUCCESS) {
    return {ErrorCode::kCorrupt, fmt::format("{}: {}{} is missing", file_, prefix_, field)};
  }
  return {ErrorCode::kCorrupt, fmt::format("{}: {}{} is {}, expected is {}", file_, prefix_, field,
                                           printable(simdjson::minify(value)), expected)};
}

Status JsonFields::unsupported(std::string_view what) const {
  return {ErrorCode::kUnsupported, fmt::format("{}: {}", file_, what)};
}

Expected<std::int64_t> JsonFields::integer(std::string_view field, std::int64_t least,
                                           std::int64_t largest) const {
  std::int64_t value = 0;
  if (object_[field].get(value) != simdjson::SUCCESS || value < least || value > largest)
    return wrong(field, fmt::format("an integer from {} to {}", least, largest));
  return value;
}

Expected<std::int64_t> JsonFields::integer(std::string_view field, std::int64_t least, std::int64_t largest,
                                           std::int64_t fallback) const {
  if (!has(field)) return fallback;
  return integer(field, least, largest);
}

Expected<double> JsonFields::number(std::string_view field, double least, double largest) const {
  double value = 0;
  // Integers are numbers too.
  if (object_[field].get(value) != simdjson::SUCCESS || !(value >= least && value <= largest))
    return wrong(field, fmt::format("a number from {} to {}", least, largest));
  return value;
}

Expected<double> JsonFields::positive(std::string_view field, double largest) const {
  double value = 0;
  if (object_[field].get(value) != simdjson::SUCCESS || !(value > 0 && value <= largest))
    return wrong(field, fmt::format("a number above 0 and up to {}", largest));
  return value;
}

Expected<double> JsonFields::positive(std::string_view field, double largest, double fallback) const {
  if (!has(field)) return fallback;
  return positive(field, largest);
}

Expected<bool> JsonFields::boolean(std::string_view field, bool fallback) const {
  if (!has(field)) return fallback;
  bool value = false;
  if (object_[field].get(value) != simdjson::SUCCESS) return wrong(field, "true or false");
  return value;
}

Expected<std::string> JsonFields::text(std::string_view field, std::string_view fallback) const {
  if (!has(field)) return std::string(fallback);
  std::string_view value;
  if (object_[field].get(value) != simdjson::SUCCESS) return wrong(field, "a string");
  return std::string(value);
}

Expected<std::vector<std::string>> JsonFields::texts(std::string_view field) const {
  std::vector<std::string> out;
  if (!has(field)) return out;
  simdjson::dom::array values;
  if (object_[field].get(values) != simdjson::SUCCESS) return wrong(field, "a list of strings");
  for (const simdjson::dom::element value : values) {
    std::string_view text;
    if (value.get(text) != simdjson::SUCCESS) return wrong(field, "a list of strings");
    out.emplace_back(text);
  }
  return out;
}

Expected<std::vector<std::int64_t>> JsonFields::integers(std::string_view field, std::int64_t least,
                                                         std::int64_t largest) const {
  std::vector<std::int64_t> out;
  if (!has(field)) return out;
  simdjson::dom::array values;
  if (object_[field].get(values) != simdjson::SUCCESS) {
    SHOAL_ASSIGN(one, integer(field, least, largest));
    out.push_back(one);
    return out;
  }
  for (const simdjson::dom::element value : values) {
    std::int64_t number = 0;
    if (value.get(number) != simdjson::SUCCESS || number < least || number > largest)
      return wrong(field, fmt::format("integers from {} to {}", least, largest));
    out.push_back(number);
  }
  return out;
}

Expected<std::optional<JsonFields>> JsonFields::object(std::string_view field) const {
  if (!has(field)) return std::optional<JsonFields>();
  simdjson::dom::object value;
  if (object_[field].get(value) != simdjson::SUCCESS) return wrong(field, "an object");
  return std::optional<JsonFields>(JsonFields(value, file_, fmt::format("{}{}.", prefix_, field)));
}

}  // namespace shoal::formats
