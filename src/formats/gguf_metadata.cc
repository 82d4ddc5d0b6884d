// Reading a model's metadata from the keys of a GGUF file.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "formats/architecture.h"
#include "formats/model_metadata.h"

namespace shoal::formats {
namespace {

template <typename... Args>
Status corrupt(const GgufFile& file, fmt::format_string<Args...> text, Args&&... args) {
  return {ErrorCode::kCorrupt,
          fmt::format("{}: {}", file.name(), fmt::format(text, std::forward<Args>(args)...))};
}
template <typename... Args>
Status unsupported(const GgufFile& file, fmt::format_string<Args...> text, Args&&... args) {
  return {ErrorCode::kUnsupported,
          fmt::format("{}: {}", file.name(), fmt::format(text, std::forward<Args>(args)...))};
}

// Reads the keys of one architecture: `key("block_count")` is "llama.block_count".
class Keys {
 public:
  Keys(const GgufFile& file, std::string architecture)
      : file_(file), prefix_(std::move(architecture) + ".") {}

  std::string key(std::string_view suffix) const { return prefix_ + std::string(suffix); }
  bool has(std::string_view suffix) const { return file_.has(key(suffix)); }

  // An integer in [1, largest].
  Expected<std::int64_t> count(std::string_view suffix, std::uint64_t largest) const {
    SHOAL_ASSIGN(value, file_.get_uint(key(suffix)));
    return in_range(suffix, value, 1, largest);
  }
  Expected<std::int64_t> count(std::string_view suffix, std::uint64_t largest, std::int64_t fallback) const {
    if (!has(suffix)) return fallback;
    return count(suffix, largest);
  }
  // An integer in [0, largest], 0 where absent.
  Expected<std::int64_t> count_or_zero(std::string_view suffix, std::uint64_t largest) const {
    SHOAL_ASSIGN(value, file_.get_uint(key(suffix), 0));
    return in_range(suffix, value, 0, largest);
  }
  // A finite number in (0, largest].
  Expected<double> positive(std::string_view suffix, double largest) const {
    SHOAL_ASSIGN(value, file_.get_float(key(suffix)));
    if (!(value > 0.0 && value <= largest)) {
      return corrupt(file_, "{} is {}, a number above 0 and up to {} is expected", key(suffix), value,
                     largest);
    }
    return value;
  }
  Expected<double> positive(std::string_view suffix, double largest, double fallback) const {
    if (!has(suffix)) return fallback;
    return positive(suffix, largest);
  }

 private:
  Expected<std::int64_t> in_range(std::string_view suffix, std::uint64_t value, std::uint64_t least,
                                  std::uint64_t largest) const {
    if (value < least || value > largest) {
      return corrupt(file_, "{} is {}, expected is {} to {}", key(suffix), value, least, largest);
    }
    return static_cast<std::int64_t>(value);
  }

  const GgufFile& file_;
  std::string prefix_;
};

bool present(Presence presence, const TensorTable& tensors, std::string_view tensor) {
  if (presence == Presence::kIfThere) return tensors.find(tensor) != nullptr;
  return presence == Presence::kAlways;
}

Status refuse_what_is_not_built(const GgufFile& file, const Keys& keys) {
  SHOAL_ASSIGN(experts, file.get_uint(keys.key("expert_count"), 0));
  if (experts > 0) return unsupported(file, "a mixture of {} experts, which cannot be served yet", experts);
  SHOAL_ASSIGN(causal, file.get_bool(keys.key("attention.causal"), true));
  if (!causal)
    return unsupported(file, "attention is not causal: an embedding model, which cannot be served");
  return {};
}

Status read_dimensions(const GgufFile& file, const Keys& keys, ModelMetadata& model) {
  SHOAL_ASSIGN(layers, keys.count("block_count", kLargestLayers));
  SHOAL_ASSIGN(dim, keys.count("embedding_length", kLargestWidth));
  SHOAL_ASSIGN(heads, keys.count("attention.head_count", kLargestHeads));
  SHOAL_ASSIGN(kv_heads, keys.count("attention.head_count_kv", kLargestHeads, heads));
  SHOAL_ASSIGN(ffn_dim, keys.count("feed_forward_length", kLargestFeedForward));
  SHOAL_ASSIGN(context, keys.count("context_length", kLargestContext));
  SHOAL_ASSIGN(rms_eps, keys.positive("attention.layer_norm_rms_epsilon", 1.0));
  if (heads % kv_heads != 0) {
    return corrupt(file, "{} is {}, which is not a multiple of the {} KV heads",
                   keys.key("attention.head_count"), heads, kv_heads);
  }
  if (!keys.has("attention.key_length") && dim % heads != 0) {
    return corrupt(file, "{} is {}, which {} heads cannot share evenly", keys.key("embedding_length"), dim,
                   heads);
  }
  SHOAL_ASSIGN(head_dim, keys.count("attention.key_length", kLargestHeadDim, dim / heads));
  SHOAL_ASSIGN(value_dim, keys.count("attention.value_length", kLargestHeadDim, head_dim));
  if (value_dim != head_dim) {
    return unsupported(file, "keys are {} wide and values {}; only equal widths can be served", head_dim,
                       value_dim);
  }
  if (head_dim % 2 != 0 || head_dim > static_cast<std::int64_t>(kLargestHeadDim)) {
    return corrupt(file, "a head is {} wide; an even number up to {} is expected", head_dim, kLargestHeadDim);
  }
  model.layers = layers;
  model.dim = dim;
  model.heads = heads;
  model.kv_heads = kv_heads;
  model.head_dim = head_dim;
  model.ffn_dim = ffn_dim;
  model.context = context;
  model.rms_eps = rms_eps;
  return {};
}

// The embedding's rows decide, then the key, then the tokenizer; those that are there must agree.
Status read_vocab(const GgufFile& file, const TensorTable& tensors, const Keys& keys, ModelMetadata& model) {
  const ModelTensor* embedding = tensors.find("token_embd.weight");
  SHOAL_ASSIGN(by_key, keys.count_or_zero("vocab_size", kLargestVocab));
  const GgufValue* tokens = file.find("tokenizer.ggml.tokens");
  const auto by_tokens = tokens == nullptr ? std::uint64_t{0} : tokens->count();
  if (by_tokens > kLargestVocab) return corrupt(file, "the tokenizer has {} tokens", by_tokens);

  model.vocab = embedding != nullptr ? embedding->rows() : by_key;
  if (model.vocab == 0) model.vocab = static_cast<std::int64_t>(by_tokens);
  if (model.vocab < 1 || model.vocab > static_cast<std::int64_t>(kLargestVocab)) {
    return corrupt(file, "the vocabulary has {} tokens, expected is 1 to {}", model.vocab, kLargestVocab);
  }
  if (by_key != 0 && by_key != model.vocab) {
    return corrupt(file, "{} is {}, but token_embd.weight has {} rows", keys.key("vocab_size"), by_key,
                   model.vocab);
  }
  if (by_tokens != 0 && static_cast<std::int64_t>(by_tokens) != model.vocab) {
    return corrupt(file, "the tokenizer has {} tokens, but the model's vocabulary {}", by_tokens,
                   model.vocab);
  }
  return {};
}

Expected<std::vector<float>> read_rope_factors(const GgufFile& file, const ModelTensor& tensor,
                                               std::int64_t dims) {
  if (tensor.type != DType::kF32 || tensor.n_dims != 1 || tensor.dims[0] != dims / 2) {
    return corrupt(file, "tensor 'rope_freqs.weight' is {} of {} elements, f32 of {} is expected",
                   dtype_name(tensor.type), tensor.elements(), dims / 2);
  }
  std::vector<float> factors(static_cast<std::size_t>(dims / 2));
  std::memcpy(factors.data(), tensor.bytes.data(), tensor.bytes.size());
  for (const float factor : factors) {
    if (!(std::isfinite(factor) && factor > 0.0F)) {
      return corrupt(file, "tensor 'rope_freqs.weight' holds {}, which divides a frequency", factor);
    }
  }
  return factors;
}

Status read_yarn(const GgufFile& file, const Keys& keys, ModelMetadata& model) {
  if (!(model.rope.freq_base > 1)) {
    return corrupt(file, "{} is {}, and YaRN needs more than 1", keys.key("rope.freq_base"),
                   model.rope.freq_base);
  }
  SHOAL_ASSIGN(original, keys.count("rope.scaling.original_context_length", kLargestContext, model.context));
  SHOAL_ASSIGN(attn, keys.positive("rope.scaling.attn_factor", 1e3, 1.0));
  SHOAL_ASSIGN(attn_yarn, keys.positive("rope.scaling.yarn_attn_factor", 1e3, attn));
  SHOAL_ASSIGN(fast, keys.positive("rope.scaling.yarn_beta_fast", 1e6, 32.0));
  SHOAL_ASSIGN(slow, keys.positive("rope.scaling.yarn_beta_slow", 1e6, 1.0));
  model.rope.original_context = original;
  model.rope.attn_factor = attn_yarn;
  model.rope.beta_fast = fast;
  model.rope.beta_slow = slow;
  return {};
}

Status read_rope(const GgufFile& file, const TensorTable& tensors, const Keys& keys, ModelMetadata& model) {
  RopeSettings& rope = model.rope;
  SHOAL_ASSIGN(base, keys.positive("rope.freq_base", 1e12, 10000.0));
  SHOAL_ASSIGN(dims, keys.count("rope.dimension_count", kLargestHeadDim, model.head_dim));
  if (dims % 2 != 0 || dims > model.head_dim) {
    return corrupt(file, "{} is {}; an even number up to the head's {} is expected",
                   keys.key("rope.dimension_count"), dims, model.head_dim);
  }
  rope.freq_base = base;
  rope.dims = dims;

  // Older writers had one key for linear scaling alone.
  SHOAL_ASSIGN(old_linear, keys.positive("rope.scale_linear", 1e4, 1.0));
  SHOAL_ASSIGN(type, file.get_string(keys.key("rope.scaling.type"), old_linear == 1.0 ? "none" : "linear"));
  SHOAL_ASSIGN(factor, keys.positive("rope.scaling.factor", 1e4, old_linear));
  if (type == "linear" || type == "yarn") {
    rope.scaling = type == "linear" ? RopeScaling::kLinear : RopeScaling::kYarn;
    rope.factor = factor;
  } else if (type != "none") {
    return unsupported(file, "rope scaling '{}'; known are none, linear, yarn and llama3's factors",
                       printable(type));
  }
  if (rope.scaling == RopeScaling::kYarn) SHOAL_TRY(read_yarn(file, keys, model));

  const ModelTensor* factors = tensors.find("rope_freqs.weight");
  if (factors == nullptr) return {};
  if (rope.scaling != RopeScaling::kNone) {
    return unsupported(file, "rope scaling '{}' together with rope_freqs.weight", type);
  }
  SHOAL_ASSIGN(values, read_rope_factors(file, *factors, dims));
  rope.factors = std::move(values);
  rope.scaling = RopeScaling::kLlama3;
  return {};
}

// Of every `period` layers the last sees all.
void open_every(std::int64_t period, std::vector<std::int64_t>& windows) {
  for (std::size_t i = static_cast<std::size_t>(period) - 1; i < windows.size();
       i += static_cast<std::size_t>(period)) {
    windows[i] = 0;
  }
}

Status read_windows(const GgufFile& file, const Keys& keys, const Architecture& architecture,
                    ModelMetadata& model) {
  SHOAL_ASSIGN(window, keys.count_or_zero("attention.sliding_window", kLargestContext));
  model.windows.assign(static_cast<std::size_t>(model.layers), window);
  if (window == 0) return {};
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  if (!keys.has(kPattern)) {
    if (architecture.full_period > 0) open_every(architecture.full_period, model.windows);
    return {};
  }
  // Either one flag per layer, or n: every n-th layer sees all.
  if (const auto flags = file.find(keys.key(kPattern))->as_bools()) {
    if (flags->size() != model.windows.size()) {
      return corrupt(file, "{} has {} entries for {} layers", keys.key(kPattern), flags->size(),
                     model.layers);
    }
    for (std::size_t i = 0; i < flags->size(); ++i) {
      if (!(*flags)[i]) model.windows[i] = 0;
    }
    return {};
  }
  SHOAL_ASSIGN(period, keys.count(kPattern, kLargestLayers));
  open_every(period, model.windows);
  return {};
}

// What the family adds to the Llama shape.
Status read_family(const Keys& keys, const Architecture& architecture, ModelMetadata& model) {
  const auto dim = static_cast<double>(model.dim);
  model.activation = architecture.activation;
  model.post_norms = architecture.post_norms;
  if (architecture.scaled_embeddings) model.embedding_scale = std::sqrt(dim);
  const bool wide = architecture.wide_scale_layers == model.layers;
  const double scale =
      1 / std::sqrt(wide ? dim / static_cast<double>(model.heads) : static_cast<double>(model.head_dim));
  SHOAL_ASSIGN(attention_scale, keys.positive("attention.scale", 1e6, scale));
  model.attention_scale = attention_scale;
  if (architecture.attention_softcap > 0) {
    SHOAL_ASSIGN(cap, keys.positive("attn_logit_softcapping", 1e6, architecture.attention_softcap));
    model.attention_softcap = cap;
  }
  if (architecture.final_softcap > 0) {
    SHOAL_ASSIGN(cap, keys.positive("final_logit_softcapping", 1e6, architecture.final_softcap));
    model.final_softcap = cap;
  }
  if (architecture.window_rope_base > 0 && model.has_sliding_window()) {
    SHOAL_ASSIGN(base, keys.positive("rope.freq_base_swa", 1e12, architecture.window_rope_base));
    RopeSettings rope;
    rope.style = model.rope.style;
    rope.dims = model.rope.dims;
    rope.freq_base = base;
    model.window_rope = rope;
  }
  return {};
}

}  // namespace

Expected<ModelMetadata> read_model_metadata(const GgufFile& file, const TensorTable& tensors) {
  SHOAL_ASSIGN(name, file.get_string("general.architecture"));
  const Architecture* architecture = find_architecture(name);
  if (architecture == nullptr) {
    return unsupported(file, "architecture '{}' cannot be served; known are {}", printable(name),
                       known_architectures());
  }
  const Keys keys(file, std::string(name));
  ModelMetadata model;
  model.architecture = std::string(name);
  SHOAL_ASSIGN(title, file.get_string("general.name", ""));
  model.name = std::string(title);
  model.rope.style = architecture->rope;
  SHOAL_TRY(refuse_what_is_not_built(file, keys));
  SHOAL_TRY(read_dimensions(file, keys, model));
  SHOAL_TRY(read_vocab(file, tensors, keys, model));
  SHOAL_TRY(read_rope(file, tensors, keys, model));
  SHOAL_TRY(read_windows(file, keys, *architecture, model));
  SHOAL_TRY(read_family(keys, *architecture, model));
  model.tied_embeddings = tensors.find("output.weight") == nullptr;
  model.attention_bias = present(architecture->attention_bias, tensors, "blk.0.attn_q.bias");
  model.attention_output_bias = tensors.find("blk.0.attn_output.bias") != nullptr;
  model.qk_norm = present(architecture->qk_norm, tensors, "blk.0.attn_q_norm.weight");
  return model;
}

Expected<ModelMetadata> read_model_metadata(const GgufFile& file) {
  SHOAL_ASSIGN(parts, file.get_uint("split.count", 1));
  if (parts > 1) return unsupported(file, "one of the {} files of a split model", parts);
  return read_model_metadata(file, TensorTable::of(file));
}

}  // namespace shoal::formats
