#include "model/description.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

namespace shoal::model {

namespace {

// YaRN: the share of the unscaled frequency that pair i keeps. Pairs that turn more than beta_fast times over
// the original context keep all of it, those that turn less than beta_slow times nothing.
class YarnRamp {
 public:
  explicit YarnRamp(const formats::RopeSettings& rope) {
    const auto dims = static_cast<double>(rope.dims);
    const auto pair_turning = [&](double turns) {
      return dims * std::log(static_cast<double>(rope.original_context) / (turns * 2 * std::numbers::pi)) /
             (2 * std::log(rope.freq_base));
    };
    low_ = std::max(0.0, std::floor(pair_turning(rope.beta_fast)));
    high_ = std::min(dims - 1, std::ceil(pair_turning(rope.beta_slow)));
  }

  double kept(std::int64_t pair) const {
    const double y = (static_cast<double>(pair) - low_) / std::max(0.001, high_ - low_);
    return 1 - std::clamp(y, 0.0, 1.0);
  }

 private:
  double low_ = 0;
  double high_ = 0;
};

// Layers that keep the same positions share a group: full attention first, then one for each window.
std::vector<KvGroup> group_layers(std::vector<LayerDescription>& layers) {
  std::vector<std::int32_t> windows;
  for (const auto& layer : layers) windows.push_back(layer.attention.window);
  std::sort(windows.begin(), windows.end());
  windows.erase(std::unique(windows.begin(), windows.end()), windows.end());

  std::vector<KvGroup> groups;
  for (const std::int32_t window : windows) {
    KvGroup group;
    group.id = KvGroupId(static_cast<std::int32_t>(groups.size()));
    group.window = window;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      AttentionBlock& attention = layers[i].attention;
      if (attention.window != window) continue;
      attention.kv_group = group.id.value;
      attention.layer_in_group = static_cast<std::int32_t>(group.layers.size());
      group.layers.push_back(static_cast<std::int32_t>(i));
      group.kv_heads = attention.kv_heads;
      group.head_dim = attention.head_dim;
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace

kernels::Rope rope_of(const formats::RopeSettings& settings) {
  kernels::Rope rope;
  rope.adjacent_pairs = settings.style == formats::RopeStyle::kInterleaved;
  std::optional<YarnRamp> ramp;
  if (settings.scaling == formats::RopeScaling::kYarn) ramp.emplace(settings);
  for (std::int64_t pair = 0; pair < settings.dims / 2; ++pair) {
    const double plain =
        std::pow(settings.freq_base, -2 * static_cast<double>(pair) / static_cast<double>(settings.dims));
    double frequency = plain;
    switch (settings.scaling) {
      case formats::RopeScaling::kNone:
        break;
      case formats::RopeScaling::kLinear:
        frequency = plain / settings.factor;
        break;
      case formats::RopeScaling::kYarn: {
        const double kept = ramp->kept(pair);
        frequency = plain / settings.factor * (1 - kept) + plain * kept;
        break;
      }
      case formats::RopeScaling::kLlama3:
        frequency = plain / static_cast<double>(settings.factors[static_cast<std::size_t>(pair)]);
        break;
    }
    rope.inverse_frequency.push_back(static_cast<float>(frequency));
  }
  if (ramp) {
    rope.magnitude = static_cast<float>(settings.attn_factor * (1 + 0.1 * std::log(settings.factor)));
  }
  return rope;
}

ModelDescription describe(const formats::ModelMetadata& metadata) {
  ModelDescription description;
  description.name = metadata.name;
  description.architecture = metadata.architecture;
  description.hidden = metadata.dim;
  description.vocabulary = metadata.vocab;
  description.context_length = static_cast<std::int32_t>(metadata.context);
  description.norm_eps = static_cast<float>(metadata.rms_eps);
  description.tied_embeddings = metadata.tied_embeddings;
  description.embedding_scale = static_cast<float>(metadata.embedding_scale);
  description.final_softcap = static_cast<float>(metadata.final_softcap);
  description.ropes.push_back(rope_of(metadata.rope));
  if (metadata.window_rope) description.ropes.push_back(rope_of(*metadata.window_rope));

  LayerDescription layer;
  layer.attention.query_heads = static_cast<std::int32_t>(metadata.heads);
  layer.attention.kv_heads = static_cast<std::int32_t>(metadata.kv_heads);
  layer.attention.head_dim = static_cast<std::int32_t>(metadata.head_dim);
  layer.attention.scale = static_cast<float>(metadata.attention_scale > 0
                                                 ? metadata.attention_scale
                                                 : 1 / std::sqrt(static_cast<double>(metadata.head_dim)));
  layer.attention.softcap = static_cast<float>(metadata.attention_softcap);
  layer.attention.qkv_bias = metadata.attention_bias;
  layer.attention.output_bias = metadata.attention_output_bias;
  layer.attention.qk_norm = metadata.qk_norm;
  layer.feed_forward.width = metadata.ffn_dim;
  layer.feed_forward.activation = metadata.activation == formats::Activation::kSilu
                                      ? kernels::GatedActivation::kSilu
                                      : kernels::GatedActivation::kGeluTanh;
  layer.post_norms = metadata.post_norms;
  for (const std::int64_t window : metadata.windows) {
    layer.attention.rope = window > 0 && metadata.window_rope ? 1 : 0;
    // A window as long as the context hides nothing.
    layer.attention.window = window >= metadata.context ? 0 : static_cast<std::int32_t>(window);
    description.layers.push_back(layer);
  }
  description.kv_groups = group_layers(description.layers);
  return description;
}

}  // namespace shoal::model
