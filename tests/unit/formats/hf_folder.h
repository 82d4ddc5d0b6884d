// Small Hugging Face folders whose every byte can be changed, for tests.

#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "formats/gguf_builder.h"

namespace shoal::formats::test {

inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// A safetensors file: its length, header and data, each as given.
inline std::string safetensors(std::string_view header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + std::string(header) + std::string(data_bytes, '\0');
}

using Shapes = std::map<std::string, std::vector<std::int64_t>>;  // by tensor

// F32 zeros, one tensor after the other.
inline std::string safetensors(const Shapes& tensors, const nlohmann::json& metadata = nullptr) {
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.is_null()) header["__metadata__"] = metadata;
  std::size_t at = 0;
  for (const auto& [name, shape] : tensors) {
    std::size_t bytes = 4;
    for (const std::int64_t d : shape) bytes *= static_cast<std::size_t>(d);
    header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {at, at + bytes}}};
    at += bytes;
  }
  return safetensors(header.dump(), at);
}

// One layer, 8 wide.
struct HfFolder {
  ScratchFolder folder;
  nlohmann::json config{{"model_type", "llama"},    {"hidden_size", 8},
                        {"intermediate_size", 12},  {"num_hidden_layers", 1},
                        {"num_attention_heads", 2}, {"num_key_value_heads", 1},
                        {"vocab_size", 10},         {"max_position_embeddings", 64},
                        {"rms_norm_eps", 1e-5}};
  Shapes tensors{{"model.embed_tokens.weight", {10, 8}},
                 {"model.norm.weight", {8}},
                 {"lm_head.weight", {10, 8}},
                 {"model.layers.0.input_layernorm.weight", {8}},
                 {"model.layers.0.post_attention_layernorm.weight", {8}},
                 {"model.layers.0.self_attn.q_proj.weight", {8, 8}},
                 {"model.layers.0.self_attn.k_proj.weight", {4, 8}},
                 {"model.layers.0.self_attn.v_proj.weight", {4, 8}},
                 {"model.layers.0.self_attn.o_proj.weight", {8, 8}},
                 {"model.layers.0.mlp.gate_proj.weight", {12, 8}},
                 {"model.layers.0.mlp.up_proj.weight", {12, 8}},
                 {"model.layers.0.mlp.down_proj.weight", {8, 12}}};
  nlohmann::json metadata;

  void write_config() const { write_file(folder / "config.json", config.dump()); }
  void write() const {
    write_config();
    write_file(folder / "model.safetensors", safetensors(tensors, metadata));
  }
  // As two files: the first `count` tensors by name, and the rest. Gives the index for more changes.
  nlohmann::json write_shards(std::size_t count) const {
    write_config();
    Shapes parts[2];
    nlohmann::json index{{"metadata", {{"total_size", 0}}}, {"weight_map", nlohmann::json::object()}};
    for (const auto& [name, shape] : tensors) {
      const std::size_t part = parts[0].size() < count ? 0 : 1;
      parts[part][name] = shape;
      index["weight_map"][name] = part == 0 ? "a.safetensors" : "b.safetensors";
    }
    write_file(folder / "a.safetensors", safetensors(parts[0]));
    write_file(folder / "b.safetensors", safetensors(parts[1]));
    write_index(index);
    return index;
  }
  void write_index(const nlohmann::json& index) const {
    write_file(folder / "model.safetensors.index.json", index.dump());
  }
  std::filesystem::path path() const { return folder / ""; }
};

}  // namespace shoal::formats::test
