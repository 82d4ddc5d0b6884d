// The tokenizer of a Hugging Face model folder: tokenizer.json, with tokenizer_config.json,
// chat_template.jinja and generation_config.json where they are.

#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "core/expected.h"
#include "tokenizer/tokenizer.h"

namespace shoal::tokenizer {

// folder: holds tokenizer.json. Fails with kNotFound, kCorrupt, or kUnsupported for a part of a
// tokenizer.json that nothing here knows; the message names the file and the part.
Expected<std::shared_ptr<const Tokenizer>> load_hf_tokenizer(const std::filesystem::path& folder);
// A tokenizer.json alone, from memory. source: its name in messages.
Expected<std::shared_ptr<const Tokenizer>> parse_hf_tokenizer(std::string_view text,
                                                              const std::string& source);

}  // namespace shoal::tokenizer
