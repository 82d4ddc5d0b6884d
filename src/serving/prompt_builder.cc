#include "serving/prompt_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace shoal::serving {
namespace {

using Json = nlohmann::ordered_json;

// Marks where the last message's own text ends: the text itself may occur in what the template puts after it.
// A noncharacter of Unicode on both sides, so that no honest text holds it and no template trims it.
constexpr const char* kEndOfText = "\uFDD0end of text\uFDD1";

// Unicode composition makes text at most three times shorter before it is cut into tokens.
constexpr std::size_t kNormalizerShrink = 3;

// Text that the wire has checked and written; should it not parse all the same, the request is refused.
Expected<Json> parse_checked(const std::string& text, const char* field) {
  Json value = Json::parse(text, nullptr, false);
  if (value.is_discarded()) {
    return Status(ErrorCode::kInvalidArgument, fmt::format("{} is not valid JSON", field), field);
  }
  return value;
}

// The request's own fields as template arguments; chat_template_kwargs win.
Expected<Json> template_arguments(const wire::ChatRequest& request) {
  Json arguments = Json::object();
  arguments["add_generation_prompt"] = request.add_generation_prompt;
  if (request.reasoning_effort) arguments["reasoning_effort"] = *request.reasoning_effort;
  if (!request.template_kwargs_json.empty()) {
    SHOAL_ASSIGN(kwargs, parse_checked(request.template_kwargs_json, "chat_template_kwargs"));
    arguments.update(kwargs);
  }
  return arguments;
}

}  // namespace

Expected<PromptBuilder> PromptBuilder::make(std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                                            std::int32_t context) {
  PromptBuilder builder(std::move(tokenizer));
  std::size_t longest = 1;
  for (TokenId id = 0; id < builder.tokenizer_->vocab_size(); ++id) {
    longest = std::max(longest, builder.tokenizer_->piece(id).size());
  }
  builder.context_ = context;
  builder.most_bytes_ = kNormalizerShrink * longest * static_cast<std::size_t>(context);
  const std::string& source = builder.tokenizer_->chat_template();
  if (source.empty()) return builder;
  auto parsed =
      tokenizer::ChatTemplate::parse(source, builder.tokenizer_->bos_text(), builder.tokenizer_->eos_text());
  if (!parsed.ok()) {
    return Status(parsed.error().code(),
                  fmt::format("the model's chat template: {}", parsed.error().message()));
  }
  builder.template_ = *std::move(parsed);
  builder.knows_developer_ = source.find("developer") != std::string::npos;
  return builder;
}

Expected<std::string> PromptBuilder::render(const wire::ChatRequest& request) const {
  if (!template_) {
    return Status(ErrorCode::kInvalidArgument, "this model has no chat template; use /v1/completions",
                  "messages");
  }
  tokenizer::ChatRequest chat;
  SHOAL_ASSIGN(messages, parse_checked(wire::messages_json(request.messages), "messages"));
  chat.messages = std::move(messages);
  if (!knows_developer_) {
    for (Json& message : chat.messages) {
      if (message.value("role", "") == "developer") message["role"] = "system";
    }
  }
  if (!request.tools_json.empty() && !request.tool_choice_none) {
    SHOAL_ASSIGN(tools, parse_checked(request.tools_json, "tools"));
    chat.tools = std::move(tools);
  }
  SHOAL_ASSIGN(kwargs, template_arguments(request));
  chat.kwargs = std::move(kwargs);
  if (request.continue_final_message) {
    Json& content = chat.messages.back()["content"];
    content = (content.is_string() ? content.get<std::string>() : std::string()) + kEndOfText;
  }

  auto rendered = template_->render(chat);
  if (!rendered.ok()) {
    return Status(ErrorCode::kInvalidArgument, rendered.error().message(), "messages");
  }
  if (!request.continue_final_message) return rendered;

  // Everything up to the last message's own text stays; what the template puts after it is cut off.
  const auto at = rendered->rfind(kEndOfText);
  if (at == std::string::npos) {
    return Status(
        ErrorCode::kInvalidArgument,
        "continue_final_message: the chat template does not render the last message's text as it is",
        "continue_final_message");
  }
  return rendered->substr(0, at);
}

Expected<std::vector<TokenId>> PromptBuilder::chat(const wire::ChatRequest& request) const {
  SHOAL_ASSIGN(text, render(request));
  return encode(text, false, "messages");
}

// A text that cannot fit is refused by its size: encoding 16 MB takes seconds in which nobody else is read.
Expected<std::vector<TokenId>> PromptBuilder::encode(std::string_view text, bool add_special,
                                                     const char* field) const {
  if (text.size() > most_bytes_) {
    return Status(
        ErrorCode::kTooLong,
        fmt::format("the prompt has {} bytes, more than the {} tokens of this model's context can hold",
                    text.size(), context_),
        field);
  }
  return tokenizer_->encode(text, {.add_special = add_special, .parse_special = true});
}

Expected<std::vector<TokenId>> PromptBuilder::completion(const wire::Prompt& prompt) const {
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    auto ids = encode(*text, true, "prompt");
    if (ids.ok() && ids->empty()) {
      return Status(ErrorCode::kInvalidArgument, "the prompt is empty: this model needs at least one token",
                    "prompt");
    }
    return ids;
  }
  const auto& ids = std::get<std::vector<TokenId>>(prompt);
  for (const TokenId id : ids) {
    if (id < 0 || id >= tokenizer_->vocab_size()) {
      return Status(ErrorCode::kInvalidArgument,
                    fmt::format("prompt names token {}; this model has tokens 0 to {}", id,
                                tokenizer_->vocab_size() - 1),
                    "prompt");
    }
  }
  return ids;
}

}  // namespace shoal::serving
