#include "tokenizer/hf_config.h"

#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "core/mapped_file.h"

namespace shoal::tokenizer {
namespace {

using nlohmann::json;

// simdjson, which reads tokenizer.json, refuses integers past 64 bits; these files often have one of 10^30.
Expected<json> read_json(const std::filesystem::path& path) {
  SHOAL_ASSIGN(text, read_text_file(path));
  json parsed = json::parse(text, nullptr, false);
  if (parsed.is_discarded() || !parsed.is_object()) {
    return Status(ErrorCode::kCorrupt, path.string() + ": is not a JSON object");
  }
  return parsed;
}

// A token stands as its name or as an object with "content".
std::optional<std::string> token_name(const json& config, const char* key) {
  auto at = config.find(key);
  if (at == config.end()) return std::nullopt;
  if (at->is_string()) return at->get<std::string>();
  if (at->is_object() && at->contains("content") && (*at)["content"].is_string()) {
    return (*at)["content"].get<std::string>();
  }
  return std::nullopt;
}

// One template, or a list of named ones.
std::string chat_template(const json& config) {
  const auto at = config.find("chat_template");
  if (at == config.end()) return {};
  if (at->is_string()) return at->get<std::string>();
  if (!at->is_array()) return {};
  for (const json& entry : *at) {
    if (entry.is_object() && entry.value("name", json()) == "default" && entry.contains("template") &&
        entry["template"].is_string()) {
      return entry["template"].get<std::string>();
    }
  }
  return {};
}

void add_end(const json& id, std::vector<std::int64_t>& ends) {
  if (id.is_number_integer()) ends.push_back(id.get<std::int64_t>());
}

}  // namespace

Expected<std::string> read_text_file(const std::filesystem::path& path) {
  SHOAL_ASSIGN(file, MappedFile::open(path));
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

Expected<HfConfig> read_hf_config(const std::filesystem::path& folder) {
  HfConfig out;
  std::error_code ignored;
  if (const auto path = folder / "tokenizer_config.json"; std::filesystem::exists(path, ignored)) {
    SHOAL_ASSIGN(config, read_json(path));
    out.bos = token_name(config, "bos_token");
    out.eos = token_name(config, "eos_token");
    out.chat_template = chat_template(config);
  }
  if (const auto path = folder / "chat_template.jinja"; std::filesystem::exists(path, ignored)) {
    SHOAL_ASSIGN(text, read_text_file(path));
    out.chat_template = std::move(text);
  }
  if (const auto path = folder / "generation_config.json"; std::filesystem::exists(path, ignored)) {
    SHOAL_ASSIGN(config, read_json(path));
    const auto ids = config.find("eos_token_id");
    if (ids != config.end() && ids->is_array()) {
      for (const json& id : *ids) add_end(id, out.ends);
    } else if (ids != config.end()) {
      add_end(*ids, out.ends);
    }
  }
  return out;
}

}  // namespace shoal::tokenizer
