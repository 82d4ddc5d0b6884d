// What a model's makers recommend for sampling: generation_config.json of a Hugging Face folder, or the
// general.sampling keys of a GGUF file.
//
// Thread-safety: a value and a pure function.
// Errors: kCorrupt for a file that is no JSON object or has a field out of range.
// Left out of GGUF's keys: penalties, which mean a window of the last tokens there, and samplers that are not
//   built here.

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "core/expected.h"

namespace shoal::formats {

// Nothing where the file does not say. A request's own settings go before these.
struct GenerationDefaults {
  std::optional<bool> do_sample;  // false: the makers recommend the likeliest token
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<std::int32_t> top_k;  // 0: no limit
  std::optional<double> repetition_penalty;
  // Tokens that end an answer.
  std::vector<std::int32_t> eos_token_ids;
};

// model: as Checkpoint::open. A file or folder without such keys, or that does not exist, has no defaults.
Expected<GenerationDefaults> read_generation_defaults(const std::filesystem::path& model);

}  // namespace shoal::formats
