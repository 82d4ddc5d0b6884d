// A model file of a few KiB whose every number can be changed before it is written.

#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "formats/gguf_file.h"
#include "formats/gguf_writer.h"
#include "formats/model_metadata.h"

namespace shoal::formats::test {

struct TinyModel {
  std::string architecture = "llama";
  // Without the architecture's prefix.
  std::map<std::string, std::uint32_t> numbers{
      {"block_count", 2},          {"embedding_length", 64},       {"feed_forward_length", 96},
      {"attention.head_count", 4}, {"attention.head_count_kv", 2}, {"context_length", 128},
      {"vocab_size", 50}};
  std::map<std::string, float> floats{{"attention.layer_norm_rms_epsilon", 1e-5F}};
  std::map<std::string, std::string> strings;
  struct Tensor {
    std::vector<std::int64_t> dims;
    DType type = DType::kF32;
  };
  // Filled from the numbers above by default_tensors().
  std::map<std::string, Tensor> tensors;

  TinyModel() { default_tensors(); }

  void default_tensors() {
    ModelMetadata m;
    m.layers = 2;
    m.dim = 64;
    m.heads = 4;
    m.kv_heads = 2;
    m.head_dim = 16;
    m.ffn_dim = 96;
    m.vocab = 50;
    m.tied_embeddings = true;
    for (const TensorNeed& need : needed_tensors(m)) tensors[need.name] = {need.dims, DType::kF32};
  }

  // Writes the file with zeros for weights, except where `fill` says otherwise.
  Expected<GgufFile> write(const std::filesystem::path& path, float fill = 0.0F) const {
    GgufWriter writer(path);
    writer.add_string("general.architecture", architecture);
    for (const auto& [key, value] : numbers) writer.add_uint32(architecture + "." + key, value);
    for (const auto& [key, value] : floats) writer.add_float32(architecture + "." + key, value);
    for (const auto& [key, value] : strings) writer.add_string(architecture + "." + key, value);
    for (const auto& [name, tensor] : tensors) writer.add_tensor(name, tensor.type, tensor.dims);
    SHOAL_TRY(writer.begin());
    for (const auto& [name, tensor] : tensors) {
      std::int64_t blocks = tensor.dims[0] / block_elements(tensor.type);
      for (std::size_t d = 1; d < tensor.dims.size(); ++d) blocks *= tensor.dims[d];
      const std::vector<float> data(static_cast<std::size_t>((blocks * block_bytes(tensor.type) + 3) / 4),
                                    fill);
      SHOAL_TRY(writer.write(
          std::as_bytes(std::span(data)).first(static_cast<std::size_t>(blocks * block_bytes(tensor.type)))));
    }
    SHOAL_TRY(writer.finish());
    return GgufFile::open(path);
  }
};

}  // namespace shoal::formats::test
