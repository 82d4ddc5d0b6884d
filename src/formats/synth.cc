#include "formats/synth.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "formats/gguf_writer.h"
#include "formats/synth_stream.h"
#include "formats/synth_tokenizer.h"
#include "formats/synth_weights.h"

namespace shoal::formats {
namespace {

// Figures of the published configurations; llama-micro and llama-tiny-8k are ours (the latter is the first
// six layers of smollm2-135m).
constexpr std::array kShapes = {
    // name, architecture, layers, dim, heads, KV heads, head, ffn, vocabulary, context, eps, rope base, tied,
    // factor
    SynthShape{"llama-micro", "llama", 2, 256, 4, 2, 64, 512, 512, 1024, 1e-5, 1e4, true, 0},
    SynthShape{"llama-tiny-8k", "llama", 6, 576, 9, 3, 64, 1536, 49152, 8192, 1e-5, 1e5, true, 0},
    SynthShape{"smollm2-135m", "llama", 30, 576, 9, 3, 64, 1536, 49152, 8192, 1e-5, 1e5, true, 0},
    SynthShape{"llama-1b", "llama", 16, 2048, 32, 8, 64, 8192, 128256, 131072, 1e-5, 5e5, true, 32},
    SynthShape{"llama-8b", "llama", 32, 4096, 32, 8, 128, 14336, 128256, 131072, 1e-5, 5e5, false, 8},
    SynthShape{"qwen2-0.5b", "qwen2", 24, 896, 14, 2, 64, 4864, 151936, 32768, 1e-6, 1e6, true, 0},
    SynthShape{"qwen3-0.6b", "qwen3", 28, 1024, 16, 8, 128, 3072, 151936, 40960, 1e-6, 1e6, true, 0},
    SynthShape{"qwen3-4b", "qwen3", 36, 2560, 32, 8, 128, 9728, 151936, 40960, 1e-6, 1e6, true, 0},
};

// general.file_type, llama.cpp's number for "mostly this type".
std::uint32_t file_type(DType type) {
  switch (type) {
    case DType::kF16:
      return 1;
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 3;
    case DType::kQ8_0:
      return 7;
    case DType::kQ5_0:
      return 8;
    case DType::kQ5_1:
      return 9;
    case DType::kQ4_K:
      return 14;
    case DType::kQ5_K:
      return 16;
    case DType::kQ6_K:
      return 18;
    case DType::kBF16:
      return 32;
    default:
      return 0;
  }
}

DType type_of(const TensorNeed& need, DType wanted) {
  return need.dims.size() == 1 ? DType::kF32 : synth_type(wanted, need.dims[0]);
}

void add_metadata(const SynthShape& shape, DType type, GgufWriter& writer) {
  const auto key = [&](std::string_view suffix) { return fmt::format("{}.{}", shape.architecture, suffix); };
  const auto number = [&](std::string_view suffix, std::int64_t value) {
    writer.add_uint32(key(suffix), static_cast<std::uint32_t>(value));
  };
  writer.add_string("general.architecture", shape.architecture);
  writer.add_string("general.name", fmt::format("{} with random weights", shape.name));
  writer.add_uint32("general.file_type", file_type(type));
  writer.add_uint32("general.quantization_version", 2);
  number("vocab_size", shape.vocab);
  number("context_length", shape.context);
  number("embedding_length", shape.dim);
  number("block_count", shape.layers);
  number("feed_forward_length", shape.ffn_dim);
  number("attention.head_count", shape.heads);
  number("attention.head_count_kv", shape.kv_heads);
  if (shape.head_dim * shape.heads != shape.dim || shape.architecture == "qwen3") {
    number("attention.key_length", shape.head_dim);
    number("attention.value_length", shape.head_dim);
  }
  writer.add_float32(key("attention.layer_norm_rms_epsilon"), static_cast<float>(shape.rms_eps));
  writer.add_float32(key("rope.freq_base"), static_cast<float>(shape.rope_base));
  number("rope.dimension_count", shape.head_dim);
  add_synth_tokenizer(writer, shape.vocab);
}

}  // namespace

std::span<const SynthShape> synth_shapes() { return kShapes; }

Expected<SynthShape> find_synth_shape(std::string_view name) {
  std::vector<std::string_view> names;
  names.reserve(kShapes.size());
  for (const SynthShape& shape : kShapes) {
    if (shape.name == name) return shape;
    names.push_back(shape.name);
  }
  return Status(ErrorCode::kInvalidArgument,
                fmt::format("no shape is called '{}'; there are {}", name, fmt::join(names, ", ")));
}

ModelMetadata synth_metadata(const SynthShape& shape) {
  ModelMetadata model;
  model.architecture = shape.architecture;
  model.name = fmt::format("{} with random weights", shape.name);
  model.layers = shape.layers;
  model.dim = shape.dim;
  model.heads = shape.heads;
  model.kv_heads = shape.kv_heads;
  model.head_dim = shape.head_dim;
  model.ffn_dim = shape.ffn_dim;
  model.vocab = shape.vocab;
  model.context = shape.context;
  model.rms_eps = static_cast<float>(shape.rms_eps);
  model.rope.style = shape.architecture == "llama" ? RopeStyle::kInterleaved : RopeStyle::kHalfSplit;
  model.rope.freq_base = static_cast<float>(shape.rope_base);
  model.rope.dims = shape.head_dim;
  if (shape.rope_factor > 0) {
    model.rope.scaling = RopeScaling::kLlama3;
    model.rope.factors = llama3_rope_factors(shape.head_dim, shape.rope_base, shape.rope_factor,
                                             kSynthLowFreq, kSynthHighFreq, kSynthTrainedContext);
  }
  model.windows.assign(static_cast<std::size_t>(shape.layers), 0);
  model.tied_embeddings = shape.tied;
  model.attention_scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));
  model.attention_bias = shape.architecture == "qwen2";
  model.qk_norm = shape.architecture == "qwen3";
  return model;
}

DType synth_type(DType wanted, std::int64_t row_length) {
  if (row_length % block_elements(wanted) == 0) return wanted;
  if (row_length % 32 != 0) return DType::kF16;
  switch (wanted) {
    case DType::kQ4_K:
      return DType::kQ5_0;
    case DType::kQ5_K:
      return DType::kQ5_1;
    default:
      return DType::kQ8_0;
  }
}

Status write_synth(const SynthShape& shape, const SynthOptions& options, const std::filesystem::path& path,
                   ThreadPool& pool) {
  if (!can_synthesise(options.type)) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("weights of type {} cannot be made", dtype_name(options.type))};
  }
  const ModelMetadata model = synth_metadata(shape);
  const std::vector<TensorNeed> needs = needed_tensors(model);
  GgufWriter writer(path);
  add_metadata(shape, options.type, writer);
  for (const TensorNeed& need : needs) writer.add_tensor(need.name, type_of(need, options.type), need.dims);
  if (!model.rope.factors.empty()) {
    const std::array<std::int64_t, 1> dims{static_cast<std::int64_t>(model.rope.factors.size())};
    writer.add_tensor("rope_freqs.weight", DType::kF32, dims);
  }
  SHOAL_TRY(writer.begin());
  SynthStream stream(options, writer.data_bytes(), pool);
  const auto sink = [&](std::span<const std::byte> bytes) { return writer.write(bytes); };
  for (const TensorNeed& need : needs) SHOAL_TRY(stream.write(need, type_of(need, options.type), sink));
  if (!model.rope.factors.empty()) SHOAL_TRY(stream.write_floats(model.rope.factors, sink));
  return writer.finish();
}

}  // namespace shoal::formats
