#include "wire/shoal_resume.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "wire/json.h"

namespace shoal::wire {
namespace {

constexpr std::size_t kMostIds = 1 << 24;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 40;

Expected<ResumedFields> parse_choice(JsonElement element, const std::string& path, std::int64_t number) {
  simdjson::dom::object object;
  if (element.get_object().get(object) != simdjson::SUCCESS) return field_error(path, "must be an object");
  const JsonFields fields(object, path);
  std::optional<std::int64_t> choice;
  std::optional<std::int64_t> bytes;
  SHOAL_TRY(fields.integer("choice", 0, INT32_MAX, choice));
  if (choice != number) return field_error(fields.path("choice"), fmt::format("must be {}", number));
  ResumedFields resumed;
  SHOAL_TRY(fields.integer("emitted_bytes", 0, kMostBytes, bytes));
  resumed.emitted_bytes = bytes.value_or(0);
  SHOAL_TRY(fields.boolean("finished", resumed.finished));
  if (const auto ids = fields.find("output_ids")) {
    SHOAL_ASSIGN(list, json_token_ids(*ids, fields.path("output_ids"), kMostIds));
    resumed.output_ids = std::move(list);
  }
  return resumed;
}

}  // namespace

Expected<std::vector<ResumedFields>> parse_resume(std::string_view body, std::int32_t choices) {
  std::vector<ResumedFields> resumed;
  // Hardly any request has it: a second parse for nothing would cost as much as the first.
  if (body.find("\"shoal_resume\"") == std::string_view::npos) return resumed;
  SHOAL_ASSIGN(document, JsonDocument::parse(body));
  SHOAL_ASSIGN(fields, document.fields());
  const auto element = fields.find("shoal_resume");
  if (!element) return resumed;
  simdjson::dom::array list;
  if (element->get_array().get(list) != simdjson::SUCCESS)
    return field_error("shoal_resume", "must be a list");
  for (const JsonElement each : list) {
    const auto number = std::ssize(resumed);
    if (number == choices) break;
    SHOAL_ASSIGN(choice, parse_choice(each, fmt::format("shoal_resume[{}]", number), number));
    resumed.push_back(std::move(choice));
  }
  if (std::ssize(resumed) != choices || list.size() != resumed.size())
    return field_error("shoal_resume", fmt::format("must have an entry for each of the {} choices", choices));
  return resumed;
}

std::optional<AnswerName> AnswerName::parse(std::string_view header) {
  constexpr std::size_t kDigits = 32;
  const auto digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (header.size() < kDigits + 2 || header[kDigits] != '-' ||
      !std::ranges::all_of(header.substr(0, kDigits), digit))
    return std::nullopt;
  AnswerName name{std::string(header.substr(0, kDigits)), 0};
  const auto [end, error] =
      std::from_chars(header.data() + kDigits + 1, header.data() + header.size(), name.created);
  if (error != std::errc() || end != header.data() + header.size() || name.created < 0) return std::nullopt;
  return name;
}

}  // namespace shoal::wire
