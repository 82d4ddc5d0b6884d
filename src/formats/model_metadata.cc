#include "formats/model_metadata.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <span>
#include <unordered_set>
#include <utility>

namespace shoal::formats {
namespace {

std::string layer_tensor(std::int64_t layer, std::string_view suffix) {
  return fmt::format("blk.{}.{}", layer, suffix);
}

std::string shape_text(std::span<const std::int64_t> dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

template <typename... Args>
Status refuse(ErrorCode code, const std::string& file, fmt::format_string<Args...> text, Args&&... args) {
  return {code, fmt::format("{}: {}", file, fmt::format(text, std::forward<Args>(args)...))};
}

Status check_tensor(const TensorTable& tensors, const TensorNeed& need) {
  const ModelTensor* tensor = tensors.find(need.name);
  const std::string name = tensors.spelled(need.name);
  if (tensor == nullptr) return refuse(ErrorCode::kCorrupt, tensors.model(), "tensor '{}' is missing", name);
  const std::string& file = tensors.file_of(*tensor);
  std::array<std::int64_t, 4> wanted{1, 1, 1, 1};
  std::copy(need.dims.begin(), need.dims.end(), wanted.begin());
  if (tensor->dims != wanted) {
    return refuse(ErrorCode::kCorrupt, file, "tensor '{}' has the shape {}, expected is {}", name,
                  shape_text(std::span(tensor->dims).first(static_cast<std::size_t>(tensor->n_dims))),
                  shape_text(need.dims));
  }
  if (!weight_type_supported(tensor->type)) {
    return refuse(ErrorCode::kUnsupported, file, "tensor '{}' is {}, a type that cannot be served", name,
                  dtype_name(tensor->type));
  }
  if (need.dims.size() == 1 && is_quantised(tensor->type)) {
    return refuse(ErrorCode::kUnsupported, file,
                  "tensor '{}' is a vector in {}; f32, f16 or bf16 is expected", name,
                  dtype_name(tensor->type));
  }
  return {};
}

void add_layer_needs(const ModelMetadata& m, std::int64_t layer, std::vector<TensorNeed>& out) {
  const auto add = [&](std::string_view suffix, std::vector<std::int64_t> dims, ModelPart part) {
    out.push_back({layer_tensor(layer, suffix), std::move(dims), part, layer});
  };
  const std::int64_t q = m.heads * m.head_dim;
  const std::int64_t kv = m.kv_heads * m.head_dim;
  add("attn_norm.weight", {m.dim}, ModelPart::kNorm);
  add("attn_q.weight", {m.dim, q}, ModelPart::kAttention);
  add("attn_k.weight", {m.dim, kv}, ModelPart::kAttention);
  add("attn_v.weight", {m.dim, kv}, ModelPart::kAttention);
  if (m.attention_bias) {
    add("attn_q.bias", {q}, ModelPart::kAttention);
    add("attn_k.bias", {kv}, ModelPart::kAttention);
    add("attn_v.bias", {kv}, ModelPart::kAttention);
  }
  if (m.qk_norm) {
    add("attn_q_norm.weight", {m.head_dim}, ModelPart::kNorm);
    add("attn_k_norm.weight", {m.head_dim}, ModelPart::kNorm);
  }
  add("attn_output.weight", {q, m.dim}, ModelPart::kAttention);
  if (m.attention_output_bias) add("attn_output.bias", {m.dim}, ModelPart::kAttention);
  if (m.post_norms) add("post_attention_norm.weight", {m.dim}, ModelPart::kNorm);
  add("ffn_norm.weight", {m.dim}, ModelPart::kNorm);
  add("ffn_gate.weight", {m.dim, m.ffn_dim}, ModelPart::kFeedForward);
  add("ffn_up.weight", {m.dim, m.ffn_dim}, ModelPart::kFeedForward);
  add("ffn_down.weight", {m.ffn_dim, m.dim}, ModelPart::kFeedForward);
  if (m.post_norms) add("post_ffw_norm.weight", {m.dim}, ModelPart::kNorm);
}

}  // namespace

bool ModelMetadata::has_sliding_window() const {
  return std::any_of(windows.begin(), windows.end(), [](std::int64_t window) { return window > 0; });
}

std::vector<TensorNeed> needed_tensors(const ModelMetadata& model) {
  std::vector<TensorNeed> out;
  out.push_back({"token_embd.weight", {model.dim, model.vocab}, ModelPart::kEmbedding, -1});
  for (std::int64_t layer = 0; layer < model.layers; ++layer) add_layer_needs(model, layer, out);
  out.push_back({"output_norm.weight", {model.dim}, ModelPart::kNorm, -1});
  if (!model.tied_embeddings) {
    out.push_back({"output.weight", {model.dim, model.vocab}, ModelPart::kOutput, -1});
  }
  return out;
}

bool weight_type_supported(DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ8_0:
    case DType::kQ2_K:
    case DType::kQ3_K:
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kQ6_K:
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
      return true;
    default:
      return false;
  }
}

Status check_model_tensors(const TensorTable& tensors, const ModelMetadata& model) {
  const std::vector<TensorNeed> needs = needed_tensors(model);
  std::unordered_set<std::string_view> wanted;
  for (const TensorNeed& need : needs) {
    SHOAL_TRY(check_tensor(tensors, need));
    wanted.insert(need.name);
  }
  for (const ModelTensor& tensor : tensors.tensors()) {
    if (tensor.name != "rope_freqs.weight" && !wanted.contains(tensor.name)) {
      return refuse(ErrorCode::kUnsupported, tensors.file_of(tensor),
                    "tensor '{}' has no place in a {} model of {} layers", tensors.spelled(tensor.name),
                    model.architecture, model.layers);
    }
  }
  return {};
}

Status check_model_tensors(const GgufFile& file, const ModelMetadata& model) {
  return check_model_tensors(TensorTable::of(file), model);
}

std::vector<float> llama3_rope_factors(std::int64_t dims, double freq_base, double factor, double low_freq,
                                       double high_freq, std::int64_t original_context) {
  std::vector<float> out;
  const auto original = static_cast<double>(original_context);
  for (std::int64_t i = 0; i < dims; i += 2) {
    const double wavelength =
        2.0 * std::numbers::pi * std::pow(freq_base, static_cast<double>(i) / static_cast<double>(dims));
    if (wavelength < original / high_freq) {
      out.push_back(1.0F);
    } else if (wavelength > original / low_freq) {
      out.push_back(static_cast<float>(factor));
    } else {
      const double smooth = (original / wavelength - low_freq) / (high_freq - low_freq);
      out.push_back(static_cast<float>(1.0 / ((1.0 - smooth) / factor + smooth)));
    }
  }
  return out;
}

}  // namespace shoal::formats
