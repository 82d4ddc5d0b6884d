#include "formats/generation_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "formats/gguf_file.h"
#include "formats/json_fields.h"
#include "formats/model_folder.h"

namespace shoal::formats {
namespace {

constexpr std::string_view kFile = "generation_config.json";
constexpr std::size_t kLargest = std::size_t{1} << 20;

Status read_number(const JsonFields& fields, std::string_view field, double least, double largest,
                   std::optional<double>& out) {
  if (!fields.has(field)) return {};
  SHOAL_ASSIGN(value, fields.number(field, least, largest));
  out = value;
  return {};
}

Status read_number(const GgufFile& file, std::string_view key, double least, double largest,
                   std::optional<double>& out) {
  if (!file.has(key)) return {};
  SHOAL_ASSIGN(value, file.get_float(key));
  // So that NaN is refused too.
  if (!(value >= least && value <= largest)) {
    return {ErrorCode::kCorrupt, fmt::format("{}: {} is {}, expected is a number from {} to {}", file.name(),
                                             key, value, least, largest)};
  }
  out = value;
  return {};
}

Expected<GenerationDefaults> read_gguf(const std::filesystem::path& model) {
  GenerationDefaults out;
  SHOAL_ASSIGN(file, GgufFile::open(model));
  SHOAL_TRY(read_number(file, "general.sampling.temp", 0, 2, out.temperature));
  SHOAL_TRY(read_number(file, "general.sampling.top_p", 0, 1, out.top_p));
  SHOAL_TRY(read_number(file, "general.sampling.min_p", 0, 1, out.min_p));
  constexpr std::string_view kTopK = "general.sampling.top_k";
  if (file.has(kTopK)) {
    SHOAL_ASSIGN(top_k, file.get_int(kTopK));
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    out.top_k = static_cast<std::int32_t>(std::clamp<std::int64_t>(top_k, 0, kMost));
  }
  return out;
}

}  // namespace

Expected<GenerationDefaults> read_generation_defaults(const std::filesystem::path& model) {
  GenerationDefaults out;
  std::error_code ignored;
  if (std::filesystem::is_regular_file(model, ignored)) return read_gguf(model);
  if (!std::filesystem::is_directory(model, ignored)) return out;
  SHOAL_ASSIGN(folder, ModelFolder::open(model));
  if (!folder.has(kFile)) return out;
  SHOAL_ASSIGN(text, folder.read(kFile, kLargest));
  SHOAL_ASSIGN(json, JsonFile::parse(text, (folder.path() / kFile).string()));
  const JsonFields fields(json.root(), json.name());
  if (fields.has("do_sample")) {
    SHOAL_ASSIGN(sample, fields.boolean("do_sample", false));
    out.do_sample = sample;
  }
  SHOAL_TRY(read_number(fields, "temperature", 0, 2, out.temperature));
  SHOAL_TRY(read_number(fields, "top_p", 0, 1, out.top_p));
  SHOAL_TRY(read_number(fields, "min_p", 0, 1, out.min_p));
  SHOAL_TRY(read_number(fields, "repetition_penalty", 0.001, 10, out.repetition_penalty));
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (fields.has("top_k")) {
    SHOAL_ASSIGN(top_k, fields.integer("top_k", -1, kMost));  // -1 is another way to say "no limit"
    out.top_k = static_cast<std::int32_t>(std::max<std::int64_t>(top_k, 0));
  }
  SHOAL_ASSIGN(ends, fields.integers("eos_token_id", 0, kMost));
  for (const std::int64_t id : ends) out.eos_token_ids.push_back(static_cast<std::int32_t>(id));
  return out;
}

}  // namespace shoal::formats
