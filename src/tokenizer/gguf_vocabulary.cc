#include "tokenizer/gguf_vocabulary.h"

#include <utility>

namespace shoal::tokenizer {
namespace {

using formats::GgufFile;

Status read_optional(const GgufFile& file, std::string_view key, std::optional<std::int64_t>& out) {
  if (!file.has(key)) return {};
  SHOAL_ASSIGN(value, file.get_int(key));
  out = value;
  return {};
}

Status read_optional(const GgufFile& file, std::string_view key, std::optional<bool>& out) {
  if (!file.has(key)) return {};
  SHOAL_ASSIGN(value, file.get_bool(key));
  out = value;
  return {};
}

Status read_optional(const GgufFile& file, std::string_view key, std::string& out) {
  SHOAL_ASSIGN(value, file.get_string(key, ""));
  out = value;
  return {};
}

Expected<std::vector<std::string>> read_strings(const GgufFile& file, std::string_view key) {
  SHOAL_ASSIGN(views, file.get_strings(key));
  return std::vector<std::string>(views.begin(), views.end());
}

}  // namespace

Expected<VocabularySpec> read_vocabulary(const GgufFile& file) {
  VocabularySpec spec;
  spec.source = file.name();
  if (!file.has("tokenizer.ggml.model") || !file.has("tokenizer.ggml.tokens")) {
    return Status(ErrorCode::kNotFound,
                  file.name() + ": has no vocabulary (tokenizer.ggml.model and tokenizer.ggml.tokens)");
  }
  SHOAL_TRY(read_optional(file, "general.name", spec.model_name));
  SHOAL_TRY(read_optional(file, "tokenizer.ggml.model", spec.model));
  SHOAL_TRY(read_optional(file, "tokenizer.ggml.pre", spec.pre));
  SHOAL_TRY(read_optional(file, "tokenizer.chat_template", spec.chat_template));

  SHOAL_ASSIGN(tokens, read_strings(file, "tokenizer.ggml.tokens"));
  spec.tokens = std::move(tokens);
  if (file.has("tokenizer.ggml.scores")) {
    SHOAL_ASSIGN(scores, file.get_floats("tokenizer.ggml.scores"));
    spec.scores = std::move(scores);
  }
  if (file.has("tokenizer.ggml.token_type")) {
    SHOAL_ASSIGN(types, file.get_int32s("tokenizer.ggml.token_type"));
    spec.types = std::move(types);
  }
  if (file.has("tokenizer.ggml.merges")) {
    SHOAL_ASSIGN(merges, read_strings(file, "tokenizer.ggml.merges"));
    spec.merges = std::move(merges);
  }

  const std::pair<std::string_view, std::optional<std::int64_t>*> ids[] = {
      {"tokenizer.ggml.bos_token_id", &spec.bos},
      {"tokenizer.ggml.eos_token_id", &spec.eos},
      {"tokenizer.ggml.eot_token_id", &spec.eot},
      {"tokenizer.ggml.eom_token_id", &spec.eom},
      {"tokenizer.ggml.unknown_token_id", &spec.unknown},
      {"tokenizer.ggml.fim_pad_token_id", &spec.fim_pad},
      {"tokenizer.ggml.fim_rep_token_id", &spec.fim_repository},
      {"tokenizer.ggml.fim_sep_token_id", &spec.fim_separator},
  };
  for (const auto& [key, out] : ids) SHOAL_TRY(read_optional(file, key, *out));
  SHOAL_TRY(read_optional(file, "tokenizer.ggml.add_bos_token", spec.add_bos));
  SHOAL_TRY(read_optional(file, "tokenizer.ggml.add_eos_token", spec.add_eos));
  SHOAL_TRY(read_optional(file, "tokenizer.ggml.add_space_prefix", spec.add_space_prefix));
  return spec;
}

}  // namespace shoal::tokenizer
