#include "tokenizer/chat_template_file.h"

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "tokenizer/hf_config.h"

namespace shoal::tokenizer {
namespace {

using Tokens = std::map<std::string, std::string>;

// The variables named *_token of one file; a token stands as its text or as an object with "content".
Expected<Tokens> read_tokens(const std::filesystem::path& path) {
  SHOAL_ASSIGN(text, read_text_file(path));
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return Status(ErrorCode::kCorrupt, path.string() + ": is not a JSON object");
  Tokens tokens;
  for (const auto& [name, value] : json.items()) {
    if (!std::string_view(name).ends_with("_token")) continue;
    const bool wrapped = value.is_object() && value.contains("content");
    const nlohmann::json& token = wrapped ? value["content"] : value;
    if (token.is_string()) tokens[name] = token.get<std::string>();
  }
  return tokens;
}

Expected<Tokens> folder_tokens(const std::filesystem::path& folder) {
  for (const char* name : {"special_tokens.json", "special_tokens_map.json", "tokenizer_config.json"}) {
    std::error_code ignored;
    if (std::filesystem::exists(folder / name, ignored)) return read_tokens(folder / name);
  }
  return Tokens{};
}

Expected<ChatTemplate> load_folder(const std::filesystem::path& folder) {
  SHOAL_ASSIGN(config, read_hf_config(folder));
  if (config.chat_template.empty()) {
    return Status(ErrorCode::kNotFound, folder.string() + ": has no chat template");
  }
  SHOAL_ASSIGN(tokens, folder_tokens(folder));
  return ChatTemplate::parse(std::move(config.chat_template), "", "", std::move(tokens));
}

}  // namespace

Expected<ChatTemplate> chat_template_of(const Tokenizer& tokenizer) {
  if (tokenizer.chat_template().empty())
    return Status(ErrorCode::kNotFound, "the model has no chat template");
  return ChatTemplate::parse(tokenizer.chat_template(), tokenizer.bos_text(), tokenizer.eos_text());
}

Expected<ChatTemplate> load_chat_template(const std::filesystem::path& model) {
  const auto named = [&model](const Status& status) {
    const std::string path = model.string();
    if (status.message().starts_with(path)) return status;
    return Status(status.code(), path + ": " + status.message());
  };
  std::error_code ignored;
  if (std::filesystem::is_directory(model, ignored)) {
    auto loaded = load_folder(model);
    if (!loaded.ok()) return named(loaded.error());
    return loaded;
  }
  const auto tokenizer = Tokenizer::load(model);
  if (!tokenizer.ok()) return tokenizer.error();
  auto loaded = chat_template_of(**tokenizer);
  if (!loaded.ok()) return named(loaded.error());
  return loaded;
}

}  // namespace shoal::tokenizer
