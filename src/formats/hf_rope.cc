#include "formats/hf_rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

namespace shoal::formats {
namespace {

constexpr double kLargestBase = 1e12;
constexpr double kLargestFactor = 1e4;
constexpr auto kMostTokens = static_cast<std::int64_t>(kLargestContext);

Expected<std::int64_t> trained_context(const JsonFields& scaling, const JsonFields& config,
                                       std::int64_t fallback) {
  constexpr std::string_view kField = "original_max_position_embeddings";
  if (scaling.has(kField)) return scaling.integer(kField, 1, kMostTokens);
  return config.integer(kField, 1, kMostTokens, fallback);
}

Status read_llama3(const JsonFields& scaling, const JsonFields& config, const ModelMetadata& model,
                   RopeSettings& rope) {
  SHOAL_ASSIGN(factor, scaling.number("factor", 1, kLargestFactor));
  SHOAL_ASSIGN(low, scaling.positive("low_freq_factor", kLargestFactor));
  SHOAL_ASSIGN(high, scaling.positive("high_freq_factor", kLargestFactor));
  if (!(high > low)) return scaling.wrong("high_freq_factor", "more than low_freq_factor");
  SHOAL_ASSIGN(original, trained_context(scaling, config, model.context));
  rope.scaling = RopeScaling::kLlama3;
  rope.factors = llama3_rope_factors(rope.dims, rope.freq_base, factor, low, high, original);
  return {};
}

double yarn_magnitude(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

Status read_yarn(const JsonFields& scaling, const JsonFields& config, ModelMetadata& model,
                 RopeSettings& rope) {
  SHOAL_ASSIGN(factor, scaling.number("factor", 1, kLargestFactor));
  SHOAL_ASSIGN(original, trained_context(scaling, config, model.context));
  SHOAL_ASSIGN(fast, scaling.positive("beta_fast", 1e6, 32.0));
  SHOAL_ASSIGN(slow, scaling.positive("beta_slow", 1e6, 1.0));
  SHOAL_ASSIGN(truncate, scaling.boolean("truncate", true));
  if (!truncate) return scaling.unsupported("YaRN with \"truncate\": false cannot be served yet");
  if (!(rope.freq_base > 1)) return config.wrong("rope_theta", "more than 1 for YaRN");
  double magnitude = yarn_magnitude(factor, 1.0);
  if (scaling.has("mscale") && scaling.has("mscale_all_dim")) {
    SHOAL_ASSIGN(mscale, scaling.positive("mscale", 1e3));
    SHOAL_ASSIGN(all_dim, scaling.positive("mscale_all_dim", 1e3));
    magnitude = yarn_magnitude(factor, mscale) / yarn_magnitude(factor, all_dim);
  }
  SHOAL_ASSIGN(attention, scaling.positive("attention_factor", 1e3, magnitude));
  rope.scaling = RopeScaling::kYarn;
  rope.factor = factor;
  rope.original_context = original;
  rope.beta_fast = fast;
  rope.beta_slow = slow;
  // What is kept is a multiple of YaRN's own magnitude.
  rope.attn_factor = attention / (1 + 0.1 * std::log(factor));
  const double reach = static_cast<double>(original) * factor;
  model.context =
      std::clamp<std::int64_t>(std::llround(reach), model.context, std::max(model.context, kMostTokens));
  return {};
}

Status read_scaling(const JsonFields& scaling, const JsonFields& config, ModelMetadata& model,
                    RopeSettings& rope) {
  SHOAL_ASSIGN(old_type, scaling.text("type", "default"));
  SHOAL_ASSIGN(type, scaling.text("rope_type", old_type));
  if (type == "default") return {};
  if (type == "llama3") return read_llama3(scaling, config, model, rope);
  if (type == "yarn") return read_yarn(scaling, config, model, rope);
  if (type == "linear") {
    SHOAL_ASSIGN(factor, scaling.number("factor", 1, kLargestFactor));
    rope.scaling = RopeScaling::kLinear;
    rope.factor = factor;
    return {};
  }
  return scaling.unsupported(
      fmt::format("rope scaling '{}'; known are default, linear, yarn and llama3", printable(type)));
}

// Base and scaling of one kind of layer. holder: where the base stands; scaling: absent for none.
Expected<RopeSettings> read_settings(const JsonFields& holder, double base,
                                     const std::optional<JsonFields>& scaling, const JsonFields& config,
                                     ModelMetadata& model) {
  RopeSettings rope;
  rope.style = RopeStyle::kHalfSplit;
  SHOAL_ASSIGN(freq_base, holder.positive("rope_theta", kLargestBase, base));
  SHOAL_ASSIGN(old_share, config.positive("partial_rotary_factor", 1.0, 1.0));
  SHOAL_ASSIGN(share, holder.positive("partial_rotary_factor", 1.0, old_share));
  rope.freq_base = freq_base;
  rope.dims = static_cast<std::int64_t>(static_cast<double>(model.head_dim) * share);
  if (rope.dims < 2 || rope.dims % 2 != 0) {
    return holder.wrong("partial_rotary_factor", fmt::format("an even part of a head's {}", model.head_dim));
  }
  if (scaling) SHOAL_TRY(read_scaling(*scaling, config, model, rope));
  return rope;
}

// "rope_parameters": one object, or one for each kind of layer.
Status read_parameters(const JsonFields& parameters, const JsonFields& config, double default_base,
                       double window_base, ModelMetadata& model) {
  SHOAL_ASSIGN(full, parameters.object("full_attention"));
  SHOAL_ASSIGN(window, parameters.object("sliding_attention"));
  const JsonFields& main = full ? *full : parameters;
  SHOAL_ASSIGN(rope, read_settings(main, default_base, main, config, model));
  model.rope = rope;
  if (window) {
    SHOAL_ASSIGN(of_window,
                 read_settings(*window, window_base > 0 ? window_base : default_base, window, config, model));
    model.window_rope = of_window;
  }
  return {};
}

}  // namespace

Status read_hf_rope(const JsonFields& config, double default_base, double window_base, ModelMetadata& model) {
  SHOAL_ASSIGN(parameters, config.object("rope_parameters"));
  if (parameters) return read_parameters(*parameters, config, default_base, window_base, model);
  SHOAL_ASSIGN(scaling, config.object("rope_scaling"));
  SHOAL_ASSIGN(rope, read_settings(config, default_base, scaling, config, model));
  model.rope = rope;
  if (window_base > 0) {
    SHOAL_ASSIGN(base, config.positive("rope_local_base_freq", kLargestBase, window_base));
    RopeSettings local;
    local.style = rope.style;
    local.dims = rope.dims;
    local.freq_base = base;
    model.window_rope = local;
  }
  return {};
}

}  // namespace shoal::formats
