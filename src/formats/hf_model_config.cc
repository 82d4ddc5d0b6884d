#include "formats/hf_model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "formats/hf_rope.h"

namespace shoal::formats {
namespace {

constexpr auto limit(std::uint64_t largest) { return static_cast<std::int64_t>(largest); }

// The fallback where the field is absent; what `null` stands for where it is null.
Expected<std::int64_t> count_or(const JsonFields& fields, std::string_view field, std::uint64_t largest,
                                std::int64_t absent, std::int64_t null) {
  if (fields.has(field)) return fields.integer(field, 1, limit(largest));
  const std::int64_t value = fields.mentions(field) ? null : absent;
  if (value == 0) return fields.wrong(field, "a count");
  return value;
}

Status refuse_what_is_not_built(const JsonFields& config) {
  SHOAL_ASSIGN(quantised, config.object("quantization_config"));
  if (quantised) {
    SHOAL_ASSIGN(method, quantised->text("quant_method", "an unnamed method"));
    return config.unsupported(
        fmt::format("the weights are quantised by {}, which cannot be read yet; use the unquantised "
                    "checkpoint with --weights, or a GGUF file",
                    printable(method)));
  }
  for (const std::string_view field : {"mlp_bias", "use_bidirectional_attention"}) {
    SHOAL_ASSIGN(set, config.boolean(field, false));
    if (set) return config.unsupported(fmt::format("\"{}\": true cannot be served yet", field));
  }
  return {};
}

Expected<Activation> read_activation(const JsonFields& config, Activation of_family) {
  const std::string_view usual = of_family == Activation::kSilu ? "silu" : "gelu_pytorch_tanh";
  // Gemma's older field says "gelu" and means the newer one's.
  const std::string_view field = of_family == Activation::kSilu ? "hidden_act" : "hidden_activation";
  SHOAL_ASSIGN(name, config.text(field, usual));
  if (name == "silu") return Activation::kSilu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return Activation::kGeluTanh;
  return config.unsupported(
      fmt::format("activation '{}'; known are silu and gelu_pytorch_tanh", printable(name)));
}

Status read_dimensions(const JsonFields& config, const HfDefaults& defaults, ModelMetadata& model) {
  SHOAL_ASSIGN(layers, config.integer("num_hidden_layers", 1, limit(kLargestLayers)));
  SHOAL_ASSIGN(dim, config.integer("hidden_size", 1, limit(kLargestWidth)));
  SHOAL_ASSIGN(ffn_dim, config.integer("intermediate_size", 1, limit(kLargestFeedForward)));
  SHOAL_ASSIGN(vocab, count_or(config, "vocab_size", kLargestVocab, defaults.vocab, 0));
  SHOAL_ASSIGN(heads, count_or(config, "num_attention_heads", kLargestHeads, defaults.heads, 0));
  SHOAL_ASSIGN(kv_heads, count_or(config, "num_key_value_heads", kLargestHeads,
                                  defaults.kv_heads > 0 ? defaults.kv_heads : heads, heads));
  SHOAL_ASSIGN(context, count_or(config, "max_position_embeddings", kLargestContext, defaults.context, 0));
  SHOAL_ASSIGN(rms_eps, config.positive("rms_norm_eps", 1.0, defaults.rms_eps));
  if (heads % kv_heads != 0)
    return config.wrong("num_attention_heads", fmt::format("a multiple of {} KV heads", kv_heads));
  const bool given = config.has("head_dim") || (defaults.head_dim > 0 && !config.mentions("head_dim"));
  if (!given && dim % heads != 0)
    return config.wrong("hidden_size", fmt::format("what {} heads can share evenly", heads));
  SHOAL_ASSIGN(head_dim, count_or(config, "head_dim", kLargestHeadDim,
                                  defaults.head_dim > 0 ? defaults.head_dim : dim / heads, dim / heads));
  if (head_dim % 2 != 0 || head_dim > limit(kLargestHeadDim)) {
    return Status(ErrorCode::kCorrupt,
                  fmt::format("{}: a head is {} wide; an even number up to {} is expected", config.file(),
                              head_dim, kLargestHeadDim));
  }
  model.layers = layers;
  model.dim = dim;
  model.ffn_dim = ffn_dim;
  model.vocab = vocab;
  model.heads = heads;
  model.kv_heads = kv_heads;
  model.head_dim = head_dim;
  model.context = context;
  model.rms_eps = rms_eps;
  return {};
}

Status windows_by_type(const JsonFields& config, std::int64_t window, std::vector<std::int64_t>& windows) {
  SHOAL_ASSIGN(types, config.texts("layer_types"));
  if (types.size() != windows.size()) {
    return Status(ErrorCode::kCorrupt, fmt::format("{}: layer_types has {} entries for {} layers",
                                                   config.file(), types.size(), windows.size()));
  }
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (types[i] == "sliding_attention") {
      if (window == 0) return config.wrong("sliding_window", "a window for the layers that slide");
      windows[i] = window;
    } else if (types[i] != "full_attention") {
      return config.unsupported(
          fmt::format("layer {} has '{}'; known are full_attention and "
                      "sliding_attention",
                      i, printable(types[i])));
    }
  }
  return {};
}

Status read_windows(const JsonFields& config, const HfFamily& family, ModelMetadata& model) {
  model.windows.assign(static_cast<std::size_t>(model.layers), 0);
  std::int64_t window = config.mentions("sliding_window") ? 0 : family.defaults.window;
  if (config.has("sliding_window")) {
    SHOAL_ASSIGN(given, config.integer("sliding_window", 0, limit(kLargestContext)));
    window = given;
  }
  if (family.windows == HfWindows::kAboveMaximum) {
    SHOAL_ASSIGN(use, config.boolean("use_sliding_window", false));
    if (!use) window = 0;
  }
  if (config.has("layer_types")) return windows_by_type(config, window, model.windows);
  std::int64_t first = 0;
  std::int64_t period = 0;
  switch (family.windows) {
    case HfWindows::kNever:
      return {};
    case HfWindows::kAlways:
      break;
    case HfWindows::kAboveMaximum: {
      SHOAL_ASSIGN(above, config.integer("max_window_layers", 0, limit(kLargestLayers), 28));
      first = above;
      break;
    }
    case HfWindows::kPeriodic: {
      const Architecture* architecture = find_architecture(family.architecture);
      SHOAL_ASSIGN(given, config.integer("sliding_window_pattern", 1, limit(kLargestLayers),
                                         architecture->full_period));
      period = given;
      break;
    }
  }
  for (std::int64_t i = first; i < model.layers; ++i) {
    if (period == 0 || (i + 1) % period != 0) model.windows[static_cast<std::size_t>(i)] = window;
  }
  return {};
}

// The cap, 0 for none; the family's where the field is absent.
Expected<double> read_cap(const JsonFields& config, std::string_view field, double of_family) {
  if (config.has(field)) return config.positive(field, 1e6);
  return config.mentions(field) ? 0.0 : of_family;
}

Status read_scales(const JsonFields& config, const HfFamily& family, const Architecture& architecture,
                   ModelMetadata& model) {
  const double head_dim = static_cast<double>(model.head_dim);
  double scalar = head_dim;
  if (family.defaults.query_scalar > 0) {
    SHOAL_ASSIGN(given, config.positive("query_pre_attn_scalar", 1e9, family.defaults.query_scalar));
    scalar = given;
  }
  model.attention_scale = 1 / std::sqrt(scalar);
  if (architecture.scaled_embeddings) model.embedding_scale = std::sqrt(static_cast<double>(model.dim));
  SHOAL_ASSIGN(attention_cap, read_cap(config, "attn_logit_softcapping", architecture.attention_softcap));
  SHOAL_ASSIGN(final_cap, read_cap(config, "final_logit_softcapping", architecture.final_softcap));
  model.attention_softcap = attention_cap;
  model.final_softcap = final_cap;
  if (family.norms_less_one) model.norm_offset = 1.0;
  return {};
}

}  // namespace

Expected<HfModelConfig> read_hf_model_config(const JsonFile& file) {
  const JsonFields whole(file.root(), file.name());
  SHOAL_ASSIGN(model_type, whole.text("model_type", ""));
  if (model_type.empty()) return whole.wrong("model_type", "a string");
  HfModelConfig out;
  out.family = find_hf_family(model_type);
  if (out.family == nullptr) {
    return whole.unsupported(fmt::format("model type '{}' cannot be served; known are {}",
                                         printable(model_type), known_hf_families()));
  }
  const HfFamily& family = *out.family;
  const Architecture& architecture = *find_architecture(family.architecture);
  JsonFields config = whole;
  bool tied = family.defaults.tied;
  if (family.nested) {
    SHOAL_ASSIGN(text, whole.object("text_config"));
    if (!text) return whole.wrong("text_config", "an object");
    SHOAL_TRY(refuse_what_is_not_built(whole));
    config = *text;
  }
  SHOAL_TRY(refuse_what_is_not_built(config));

  ModelMetadata& model = out.model;
  model.architecture = family.architecture;
  SHOAL_TRY(read_dimensions(config, family.defaults, model));
  SHOAL_ASSIGN(activation, read_activation(config, architecture.activation));
  model.activation = activation;
  model.post_norms = architecture.post_norms;
  SHOAL_TRY(read_windows(config, family, model));
  SHOAL_TRY(read_hf_rope(config, family.defaults.rope_base, architecture.window_rope_base, model));
  if (!model.has_sliding_window()) model.window_rope.reset();
  SHOAL_TRY(read_scales(config, family, architecture, model));
  SHOAL_ASSIGN(own_tied, config.boolean("tie_word_embeddings", tied));
  SHOAL_ASSIGN(whole_tied, whole.boolean("tie_word_embeddings", own_tied));
  model.tied_embeddings = whole_tied;
  model.attention_bias = architecture.attention_bias == Presence::kAlways;
  model.qk_norm = architecture.qk_norm == Presence::kAlways;
  return out;
}

}  // namespace shoal::formats
