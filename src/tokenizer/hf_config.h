// What the files beside a tokenizer.json say: names of the begin and end tokens, the chat template, ids that
// end an answer.
//
// Thread-safety: a value.

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/expected.h"

namespace shoal::tokenizer {

struct HfConfig {
  std::optional<std::string> bos, eos;  // names of tokens
  std::string chat_template;       // chat_template.jinja, else the one in tokenizer_config.json, else empty
  std::vector<std::int64_t> ends;  // eos_token_id of generation_config.json, one or several
};

// Reads tokenizer_config.json, chat_template.jinja and generation_config.json; each may be absent. Fails with
// kCorrupt for one that is not JSON.
Expected<HfConfig> read_hf_config(const std::filesystem::path& folder);

// A whole file as text.
Expected<std::string> read_text_file(const std::filesystem::path& path);

}  // namespace shoal::tokenizer
