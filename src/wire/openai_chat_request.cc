#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "wire/json_writer.h"
#include "wire/openai_fields.h"
#include "wire/openai_request.h"

namespace shoal::wire {

namespace {

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant", "tool"};

// One part of a content list, appended to text.
Status append_part(JsonElement element, const std::string& path, bool first, std::string& text) {
  simdjson::dom::object object;
  if (element.get_object().get(object) != simdjson::SUCCESS) return field_error(path, "must be an object");
  const JsonFields part(object, path);
  std::string type;
  SHOAL_TRY(part.text("type", type));
  if (type != "text") {
    if (type.empty()) return field_error(part.path("type"), "is missing");
    return unbuilt(part.path("type"), fmt::format("a part of type '{}'", clipped(type)));
  }
  const auto value = part.find("text");
  if (!value) return field_error(part.path("text"), "is missing");
  SHOAL_ASSIGN(piece, json_text(*value, part.path("text")));
  if (!first) text.push_back('\n');
  text += piece;
  return {};
}

Expected<std::optional<std::string>> read_content(const JsonFields& message) {
  const auto element = message.find("content");
  if (!element) return std::optional<std::string>();
  const std::string path = message.path("content");
  if (element->is_string()) {
    SHOAL_ASSIGN(text, json_text(*element, path));
    return std::optional<std::string>(std::move(text));
  }
  simdjson::dom::array parts;
  if (element->get_array().get(parts) != simdjson::SUCCESS) {
    return field_error(path, "must be a string or a list of text parts");
  }
  std::string text;
  std::size_t index = 0;
  for (const JsonElement part : parts) {
    SHOAL_TRY(append_part(part, fmt::format("{}[{}]", path, index), index == 0, text));
    ++index;
  }
  return std::optional<std::string>(std::move(text));
}

// Writes a tool call's function, its arguments as an object where they are the text of one.
Status write_function(const JsonFields& call, JsonElement element, JsonWriter& out) {
  simdjson::dom::object function;
  if (element.get_object().get(function) != simdjson::SUCCESS) {
    return field_error(call.path("function"), "must be an object");
  }
  const JsonFields fields(function, call.path("function"));
  std::string name;
  SHOAL_TRY(fields.text("name", name));
  if (name.empty()) return field_error(fields.path("name"), "is missing");
  out.begin_object();
  for (const auto [key, value] : function) {
    out.key_escaped(key);
    std::string_view text;
    if (key == "arguments" && value.get_string().get(text) == simdjson::SUCCESS) {
      const auto parsed = JsonDocument::parse(text);
      if (parsed.ok() && parsed->root().is_object()) {
        SHOAL_ASSIGN(object, json_verbatim(parsed->root(), fields.path("arguments")));
        out.raw(object);
        continue;
      }
    }
    SHOAL_ASSIGN(json, json_verbatim(value, call.path("function")));
    out.raw(json);
  }
  out.end_object();
  return {};
}

Expected<std::string> read_tool_calls(const JsonFields& message) {
  const auto element = message.find("tool_calls");
  if (!element) return std::string();
  const std::string path = message.path("tool_calls");
  simdjson::dom::array calls;
  if (element->get_array().get(calls) != simdjson::SUCCESS) return field_error(path, "must be a list");
  if (calls.size() == 0) return std::string();
  std::string text;
  JsonWriter out(text);
  out.begin_array();
  std::size_t index = 0;
  for (const JsonElement item : calls) {
    const std::string call_path = fmt::format("{}[{}]", path, index++);
    simdjson::dom::object object;
    if (item.get_object().get(object) != simdjson::SUCCESS)
      return field_error(call_path, "must be an object");
    const JsonFields fields(object, call_path);
    if (!fields.has("function")) return field_error(fields.path("function"), "is missing");
    out.begin_object();
    for (const auto [key, value] : object) {
      out.key_escaped(key);
      if (key == "function") {
        SHOAL_TRY(write_function(fields, value, out));
      } else {
        SHOAL_ASSIGN(json, json_verbatim(value, call_path));
        out.raw(json);
      }
    }
    out.end_object();
  }
  out.end_array();
  return text;
}

Expected<ChatMessage> read_message(JsonElement element, const std::string& path) {
  simdjson::dom::object object;
  if (element.get_object().get(object) != simdjson::SUCCESS) return field_error(path, "must be an object");
  const JsonFields fields(object, path);
  ChatMessage message;
  SHOAL_TRY(fields.text("role", message.role));
  if (std::find(kRoles.begin(), kRoles.end(), message.role) == kRoles.end()) {
    return field_error(fields.path("role"), "must be system, developer, user, assistant or tool");
  }
  SHOAL_ASSIGN(content, read_content(fields));
  message.content = std::move(content);
  if (!message.content && message.role != "assistant")
    return field_error(fields.path("content"), "is missing");
  SHOAL_TRY(fields.text("reasoning_content", message.reasoning_content));
  SHOAL_TRY(fields.text("name", message.name));
  SHOAL_TRY(fields.text("tool_call_id", message.tool_call_id));
  SHOAL_ASSIGN(calls, read_tool_calls(fields));
  message.tool_calls_json = std::move(calls);
  return message;
}

Status read_messages(const JsonFields& body, std::vector<ChatMessage>& out) {
  const auto element = body.find("messages");
  if (!element) return field_error("messages", "is missing");
  simdjson::dom::array list;
  if (element->get_array().get(list) != simdjson::SUCCESS) return field_error("messages", "must be a list");
  for (const JsonElement item : list) {
    SHOAL_ASSIGN(message, read_message(item, fmt::format("messages[{}]", out.size())));
    out.push_back(std::move(message));
  }
  if (out.empty()) return field_error("messages", "must hold at least one message");
  return {};
}

Status read_tools(const JsonFields& body, ChatRequest& out) {
  if (const auto element = body.find("tools")) {
    simdjson::dom::array tools;
    if (element->get_array().get(tools) != simdjson::SUCCESS) return field_error("tools", "must be a list");
    std::size_t index = 0;
    for (const JsonElement tool : tools) {
      const std::string path = fmt::format("tools[{}]", index++);
      simdjson::dom::object object;
      if (tool.get_object().get(object) != simdjson::SUCCESS) return field_error(path, "must be an object");
      const JsonFields fields(object, path);
      std::string type = "function";
      SHOAL_TRY(fields.text("type", type));
      if (type != "function")
        return unbuilt(fields.path("type"), fmt::format("a tool of type '{}'", clipped(type)));
      SHOAL_ASSIGN(function, fields.object("function"));
      if (!function) return field_error(fields.path("function"), "is missing");
      std::string name;
      SHOAL_TRY(function->text("name", name));
      if (name.empty()) return field_error(function->path("name"), "is missing");
    }
    if (index > 0) {
      SHOAL_ASSIGN(json, json_verbatim(*element, "tools"));
      out.tools_json = std::move(json);
    }
  }
  const auto choice = body.find("tool_choice");
  if (!choice) return {};
  if (choice->is_object()) return unbuilt("tool_choice", "calling a named tool");
  SHOAL_ASSIGN(text, json_text(*choice, "tool_choice"));
  if (text == "required") return unbuilt("tool_choice", "'required'");
  if (text != "auto" && text != "none") return field_error("tool_choice", "must be auto or none");
  out.tool_choice_none = text == "none";
  return {};
}

Status read_template_fields(const JsonFields& body, ChatRequest& out) {
  if (const auto kwargs = body.find("chat_template_kwargs")) {
    if (!kwargs->is_object()) return field_error("chat_template_kwargs", "must be an object");
    SHOAL_ASSIGN(json, json_verbatim(*kwargs, "chat_template_kwargs"));
    out.template_kwargs_json = std::move(json);
  }
  SHOAL_TRY(body.text("reasoning_effort", out.reasoning_effort));
  SHOAL_TRY(body.boolean("continue_final_message", out.continue_final_message));
  if (!out.continue_final_message) return body.boolean("add_generation_prompt", out.add_generation_prompt);
  out.add_generation_prompt = false;
  SHOAL_TRY(body.boolean("add_generation_prompt", out.add_generation_prompt));
  if (out.add_generation_prompt) {
    return field_error("add_generation_prompt", "must not be true together with continue_final_message");
  }
  if (out.messages.back().role != "assistant" || !out.messages.back().content) {
    return field_error("continue_final_message", "needs a last message of role assistant with content");
  }
  return {};
}

Status refuse_other_modalities(const JsonFields& body) {
  const auto element = body.find("modalities");
  if (!element) return {};
  simdjson::dom::array list;
  if (element->get_array().get(list) != simdjson::SUCCESS) return field_error("modalities", "must be a list");
  for (const JsonElement item : list) {
    SHOAL_ASSIGN(text, json_text(item, "modalities"));
    if (text != "text") return unbuilt("modalities", fmt::format("'{}'", clipped(text)));
  }
  return {};
}

Status read_logprobs(const JsonFields& body, SamplingFields& out) {
  SHOAL_TRY(body.boolean("logprobs", out.logprobs));
  SHOAL_TRY(body.integer("top_logprobs", 0, kMaxTopLogprobs, out.top_logprobs));
  if (out.top_logprobs > 0 && !out.logprobs) return field_error("top_logprobs", "needs logprobs: true");
  return {};
}

}  // namespace

Expected<ChatRequest> parse_chat_request(std::string_view body, const SamplingFields& defaults) {
  SHOAL_ASSIGN(document, JsonDocument::parse(body));
  SHOAL_ASSIGN(fields, document.fields());
  ChatRequest request;
  request.common.sampling = defaults;
  SHOAL_TRY(read_messages(fields, request.messages));
  SHOAL_TRY(read_common_fields(fields, request.common));
  SHOAL_TRY(refuse_other_modalities(fields));
  SamplingFields& sampling = request.common.sampling;
  SHOAL_TRY(read_logprobs(fields, sampling));
  constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();
  SHOAL_TRY(fields.integer("max_tokens", 1, kMaxInt32, sampling.max_tokens));
  SHOAL_TRY(fields.integer("max_completion_tokens", 1, kMaxInt32, sampling.max_tokens));
  SHOAL_TRY(check_token_limits(sampling));
  SHOAL_TRY(read_tools(fields, request));
  SHOAL_TRY(read_template_fields(fields, request));
  return request;
}

std::string messages_json(const std::vector<ChatMessage>& messages) {
  std::string text;
  JsonWriter out(text);
  out.begin_array();
  for (const ChatMessage& message : messages) {
    out.begin_object().key("role").string(message.role);
    if (message.content) {
      out.key("content").string(*message.content);
    } else {
      out.key("content").null();
    }
    if (message.reasoning_content) out.key("reasoning_content").string(*message.reasoning_content);
    if (message.name) out.key("name").string(*message.name);
    if (message.tool_call_id) out.key("tool_call_id").string(*message.tool_call_id);
    if (!message.tool_calls_json.empty()) out.key("tool_calls").raw(message.tool_calls_json);
    out.end_object();
  }
  out.end_array();
  return text;
}

}  // namespace shoal::wire
