// Feeds any bytes to the reader of config.json.
//
// Beyond crashes it checks what the rest of the program counts on: numbers within their limits, heads that
// divide, one window for each layer, and errors of one line that name the file.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "formats/hf_model_config.h"

namespace {

using shoal::formats::ModelMetadata;
using shoal::formats::RopeSettings;

void require(bool promise) {
  if (!promise) std::abort();
}

void check_error(const shoal::Status& status) {
  require(status.message().starts_with("config.json: "));
  require(status.message().find('\n') == std::string::npos);
}

void check_rope(const RopeSettings& rope, const ModelMetadata& model) {
  require(rope.dims >= 2 && rope.dims % 2 == 0 && rope.dims <= model.head_dim);
  require(std::isfinite(rope.freq_base) && rope.freq_base > 0);
  require(std::isfinite(rope.attn_factor) && rope.factor > 0);
  for (const float factor : rope.factors) require(std::isfinite(factor) && factor > 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto file = shoal::formats::JsonFile::parse(text, "config.json");
  if (!file) {
    check_error(file.error());
    return 0;
  }
  const auto config = shoal::formats::read_hf_model_config(*file);
  if (!config) {
    check_error(config.error());
    return 0;
  }
  const ModelMetadata& model = config->model;
  require(model.layers >= 1 && model.dim >= 1 && model.ffn_dim >= 1 && model.vocab >= 1);
  require(model.kv_heads >= 1 && model.heads % model.kv_heads == 0);
  require(model.head_dim >= 2 && model.head_dim % 2 == 0);
  require(model.context >= 1 && model.context <= static_cast<std::int64_t>(shoal::formats::kLargestContext));
  require(static_cast<std::int64_t>(model.windows.size()) == model.layers);
  require(std::isfinite(model.attention_scale) && model.attention_scale > 0);
  check_rope(model.rope, model);
  if (model.window_rope) check_rope(*model.window_rope, model);
  return 0;
}
