#include "formats/hf_family.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <utility>
#include <vector>

namespace shoal::formats {
namespace {

constexpr HfDefaults kGemma2Defaults{.heads = 8,
                                     .kv_heads = 4,
                                     .head_dim = 256,
                                     .vocab = 256000,
                                     .context = 8192,
                                     .window = 4096,
                                     .query_scalar = 256,
                                     .tied = true};

constexpr HfDefaults kGemma3Defaults{.heads = 8,
                                     .kv_heads = 4,
                                     .head_dim = 256,
                                     .vocab = 262208,
                                     .context = 131072,
                                     .window = 4096,
                                     .rope_base = 1e6,
                                     .query_scalar = 256,
                                     .tied = true};

constexpr std::array kFamilies = {
    HfFamily{.model_type = "llama", .architecture = "llama", .defaults = {.context = 2048}},
    HfFamily{.model_type = "mistral",
             .architecture = "mistral",
             .defaults = {.kv_heads = 8, .context = 131072, .window = 4096},
             .windows = HfWindows::kAlways},
    HfFamily{.model_type = "qwen2",
             .architecture = "qwen2",
             .defaults = {.kv_heads = 32, .context = 32768, .window = 4096},
             .windows = HfWindows::kAboveMaximum},
    HfFamily{.model_type = "qwen3",
             .architecture = "qwen3",
             .defaults = {.kv_heads = 32, .head_dim = 128, .context = 32768, .window = 4096},
             .windows = HfWindows::kAboveMaximum},
    HfFamily{.model_type = "gemma2",
             .architecture = "gemma2",
             .defaults = kGemma2Defaults,
             .windows = HfWindows::kPeriodic,
             .norms_less_one = true},
    HfFamily{.model_type = "gemma3_text",
             .architecture = "gemma3",
             .defaults = kGemma3Defaults,
             .windows = HfWindows::kPeriodic,
             .norms_less_one = true},
    HfFamily{.model_type = "gemma3",
             .architecture = "gemma3",
             .defaults = kGemma3Defaults,
             .windows = HfWindows::kPeriodic,
             .norms_less_one = true,
             .nested = true},
};

using NamePair = std::pair<std::string_view, std::string_view>;

constexpr std::array kWholeNames = {
    NamePair{"model.embed_tokens.weight", "token_embd.weight"},
    NamePair{"model.norm.weight", "output_norm.weight"},
    NamePair{"lm_head.weight", "output.weight"},
};

// Behind "model.layers.N." and "blk.N.".
constexpr std::array kLayerNames = {
    NamePair{"input_layernorm.weight", "attn_norm.weight"},
    NamePair{"self_attn.q_proj.weight", "attn_q.weight"},
    NamePair{"self_attn.k_proj.weight", "attn_k.weight"},
    NamePair{"self_attn.v_proj.weight", "attn_v.weight"},
    NamePair{"self_attn.o_proj.weight", "attn_output.weight"},
    NamePair{"self_attn.q_proj.bias", "attn_q.bias"},
    NamePair{"self_attn.k_proj.bias", "attn_k.bias"},
    NamePair{"self_attn.v_proj.bias", "attn_v.bias"},
    NamePair{"self_attn.o_proj.bias", "attn_output.bias"},
    NamePair{"self_attn.q_norm.weight", "attn_q_norm.weight"},
    NamePair{"self_attn.k_norm.weight", "attn_k_norm.weight"},
    NamePair{"mlp.gate_proj.weight", "ffn_gate.weight"},
    NamePair{"mlp.up_proj.weight", "ffn_up.weight"},
    NamePair{"mlp.down_proj.weight", "ffn_down.weight"},
};

// The same name stands for different norms: after attention in Gemma, before the feed-forward block in Llama.
constexpr std::array kTwoNorms = {NamePair{"post_attention_layernorm.weight", "ffn_norm.weight"}};
constexpr std::array kFourNorms = {
    NamePair{"post_attention_layernorm.weight", "post_attention_norm.weight"},
    NamePair{"pre_feedforward_layernorm.weight", "ffn_norm.weight"},
    NamePair{"post_feedforward_layernorm.weight", "post_ffw_norm.weight"},
};

constexpr std::string_view kTheirLayer = "model.layers.";
constexpr std::string_view kOurLayer = "blk.";

std::span<const NamePair> norm_names(const HfFamily& family) {
  const Architecture* architecture = find_architecture(family.architecture);
  if (architecture != nullptr && architecture->post_norms) return kFourNorms;
  return kTwoNorms;
}

// "12.rest" -> {"12", "rest"}; the number is one that a layer can have.
std::optional<NamePair> split_layer(std::string_view text) {
  const std::size_t dot = text.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::string_view number = text.substr(0, dot);
  std::uint64_t layer = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), layer);
  const bool canonical = number == "0" || !number.starts_with('0');
  if (error != std::errc() || end != number.data() + number.size() || !canonical || layer >= kLargestLayers)
    return std::nullopt;
  return NamePair{number, text.substr(dot + 1)};
}

template <std::string_view NamePair::*From, std::string_view NamePair::*To>
std::optional<std::string_view> translated(std::span<const NamePair> names, std::string_view name) {
  const auto found = std::find_if(names.begin(), names.end(), [&](const auto& p) { return p.*From == name; });
  if (found == names.end()) return std::nullopt;
  return (*found).*To;
}

template <std::string_view NamePair::*From, std::string_view NamePair::*To>
std::optional<std::string> translate(const HfFamily& family, std::string_view from_layer,
                                     std::string_view to_layer, std::string_view name) {
  if (const auto whole = translated<From, To>(kWholeNames, name)) return std::string(*whole);
  if (!name.starts_with(from_layer)) return std::nullopt;
  const auto layer = split_layer(name.substr(from_layer.size()));
  if (!layer) return std::nullopt;
  auto suffix = translated<From, To>(kLayerNames, layer->second);
  if (!suffix) suffix = translated<From, To>(norm_names(family), layer->second);
  if (!suffix) return std::nullopt;
  return fmt::format("{}{}.{}", to_layer, layer->first, *suffix);
}

}  // namespace

const HfFamily* find_hf_family(std::string_view model_type) {
  const auto* found = std::find_if(kFamilies.begin(), kFamilies.end(),
                                   [&](const HfFamily& f) { return f.model_type == model_type; });
  return found == kFamilies.end() ? nullptr : found;
}

std::string known_hf_families() {
  std::vector<std::string_view> names;
  names.reserve(kFamilies.size());
  for (const HfFamily& family : kFamilies) names.push_back(family.model_type);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::optional<std::string> canonical_tensor_name(const HfFamily& family, std::string_view name) {
  return translate<&NamePair::first, &NamePair::second>(family, kTheirLayer, kOurLayer, name);
}

std::string hf_tensor_name(const HfFamily& family, std::string_view canonical) {
  auto name = translate<&NamePair::second, &NamePair::first>(family, kOurLayer, kTheirLayer, canonical);
  return name ? std::move(*name) : std::string(canonical);
}

}  // namespace shoal::formats
