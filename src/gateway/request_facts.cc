#include "gateway/request_facts.h"

#include <algorithm>
#include <optional>

#include "wire/json.h"
#include "wire/json_writer.h"

namespace shoal::gateway {
namespace {

using simdjson::SUCCESS;
using wire::JsonElement;

constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;
constexpr std::int64_t kMostChoices = 4096;

// Of a string, or of the texts in a list of content parts.
policy::TextSize text_size(JsonElement content) {
  std::string_view text;
  if (content.get_string().get(text) == SUCCESS) return policy::TextSize::of(text);
  policy::TextSize size;
  simdjson::dom::array parts;
  if (content.get_array().get(parts) != SUCCESS) return size;
  for (const JsonElement part : parts) {
    if (part["text"].get_string().get(text) == SUCCESS) size += policy::TextSize::of(text);
  }
  return size;
}

void read_messages(JsonElement messages, policy::RequestSize& size) {
  simdjson::dom::array list;
  if (messages.get_array().get(list) != SUCCESS) return;
  for (const JsonElement message : list) {
    JsonElement content;
    if (message["content"].get(content) == SUCCESS) size.text += text_size(content);
  }
}

// A text, texts, ids, or lists of ids. Returns how many prompts there are.
std::int32_t read_prompt(JsonElement prompt, policy::RequestSize& size) {
  std::string_view text;
  if (prompt.get_string().get(text) == SUCCESS) {
    size.text += policy::TextSize::of(text);
    return 1;
  }
  simdjson::dom::array list;
  if (prompt.get_array().get(list) != SUCCESS) return 1;
  std::int64_t prompts = 0;
  for (const JsonElement each : list) {
    simdjson::dom::array ids;
    if (each.get_string().get(text) == SUCCESS) {
      size.text += policy::TextSize::of(text);
      ++prompts;
    } else if (each.get_array().get(ids) == SUCCESS) {
      size.token_ids += static_cast<std::int64_t>(std::distance(ids.begin(), ids.end()));
      ++prompts;
    } else {
      ++size.token_ids;
    }
  }
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(prompts, 1, kMostChoices));
}

std::optional<std::int64_t> number(const wire::JsonFields& fields, std::string_view name, std::int64_t most) {
  const auto element = fields.find(name);
  std::int64_t value = 0;
  if (!element || element->get_int64().get(value) != SUCCESS) return std::nullopt;
  return std::clamp<std::int64_t>(value, 0, most);
}

// It is there, and neither null nor false.
bool says(const wire::JsonFields& fields, std::string_view name) {
  const auto element = fields.find(name);
  bool value = false;
  return element && !element->is_null() && !(element->get_bool().get(value) == SUCCESS && !value);
}

// Past a JSON string that begins at `at` (on its quote).
std::size_t past_string(std::string_view json, std::size_t at) {
  for (++at; at < json.size(); ++at) {
    if (json[at] == '\\') {
      ++at;
    } else if (json[at] == '"') {
      return at + 1;
    }
  }
  return json.size();
}

std::size_t past_blank(std::string_view json, std::size_t at) {
  while (at < json.size() && (json[at] == ' ' || json[at] == '\t' || json[at] == '\n' || json[at] == '\r'))
    ++at;
  return at;
}

}  // namespace

Expected<RequestFacts> read_facts(std::string_view body) {
  SHOAL_ASSIGN(document, wire::JsonDocument::parse(body));
  SHOAL_ASSIGN(fields, document.fields());
  // Readers differ in which of two counts: a worker must not answer for another model than was looked at.
  simdjson::dom::object object;
  std::size_t models = 0;
  if (document.root().get_object().get(object) == SUCCESS) {
    for (const auto [key, value] : object) models += key == "model" ? 1 : 0;
  }
  if (models > 1) return wire::field_error("model", "must stand there once");
  RequestFacts facts;
  SHOAL_TRY(fields.text("model", facts.model));
  SHOAL_TRY(fields.boolean("stream", facts.stream));
  facts.has_seed = fields.has("seed");
  for (const char* name : {"bootstrap_host", "bootstrap_port", "bootstrap_room"})
    facts.has_rooms = facts.has_rooms || says(fields, name);
  if (const auto rid = fields.find("rid")) {
    std::string_view name;
    if (rid->get_string().get(name) == SUCCESS) facts.rid = name;
  }
  if (fields.has("shoal_resume"))
    return wire::field_error("shoal_resume", "is what a gateway says to its workers, not a client's to send");
  if (const auto messages = fields.find("messages")) read_messages(*messages, facts.size);
  if (const auto prompt = fields.find("prompt")) facts.prompts = read_prompt(*prompt, facts.size);
  facts.size.max_tokens = number(fields, "max_completion_tokens", kMostTokens);
  if (!facts.size.max_tokens) facts.size.max_tokens = number(fields, "max_tokens", kMostTokens);
  facts.alone = facts.size.max_tokens == 0 || (says(fields, "echo") && says(fields, "logprobs"));
  const std::int64_t n = std::max<std::int64_t>(1, number(fields, "n", kMostChoices).value_or(1));
  facts.choices = static_cast<std::int32_t>(std::min<std::int64_t>(n * facts.prompts, kMostChoices));
  facts.size.choices = facts.choices;
  return facts;
}

std::string with_fields(std::string_view body, std::string_view fields) {
  const std::size_t open = body.find('{');
  if (fields.empty() || open == std::string_view::npos) return std::string(body);
  const bool empty = past_blank(body, open + 1) < body.size() && body[past_blank(body, open + 1)] == '}';
  std::string out;
  out.reserve(body.size() + fields.size() + 1);
  out += body.substr(0, open + 1);
  out += fields;
  if (!empty) out.push_back(',');
  out += body.substr(open + 1);
  return out;
}

std::string with_text_replaced(std::string_view body, std::string_view name, std::string_view value) {
  int depth = 0;
  for (std::size_t at = 0; at < body.size();) {
    const char c = body[at];
    if (c != '"') {
      depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
      ++at;
      continue;
    }
    const std::size_t end = past_string(body, at);
    const std::string_view key = body.substr(at + 1, end - at - 2);
    const std::size_t colon = past_blank(body, end);
    at = end;
    if (depth != 1 || key != name || colon >= body.size() || body[colon] != ':') continue;
    const std::size_t begin = past_blank(body, colon + 1);
    if (begin >= body.size() || body[begin] != '"') continue;
    std::string out(body.substr(0, begin));
    wire::append_json_string(out, value);
    out += body.substr(past_string(body, begin));
    return out;
  }
  return std::string(body);
}

}  // namespace shoal::gateway
