// Where chat templates come from: a model's GGUF file, or a folder beside its tokenizer.
//
// Thread-safety: pure functions.

#pragma once

#include <filesystem>

#include "core/expected.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace shoal::tokenizer {

// The template a loaded tokenizer carries. Fails with kNotFound where it has none.
Expected<ChatTemplate> chat_template_of(const Tokenizer& tokenizer);

// model: a GGUF file, or a folder with chat_template.jinja or a tokenizer_config.json that holds one. A
// folder's special tokens come from special_tokens.json, else special_tokens_map.json, else
// tokenizer_config.json; it needs no tokenizer. The error names the file.
Expected<ChatTemplate> load_chat_template(const std::filesystem::path& model);

}  // namespace shoal::tokenizer
