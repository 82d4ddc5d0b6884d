// A synthetic model as a Hugging Face folder.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "formats/hf_family.h"
#include "formats/safetensors_writer.h"
#include "formats/synth.h"
#include "formats/synth_stream.h"
#include "formats/synth_tokenizer.h"

namespace shoal::formats {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct Shard {
  std::vector<const TensorNeed*> needs;
  std::uint64_t bytes = 0;
};

std::uint64_t bytes_of(const TensorNeed& need, DType type) {
  std::int64_t bytes = block_bytes(type);
  for (const std::int64_t d : need.dims) bytes *= d;
  return static_cast<std::uint64_t>(bytes);
}

std::vector<Shard> deal(const std::vector<TensorNeed>& needs, DType type, std::uint64_t most) {
  std::vector<Shard> shards(1);
  for (const TensorNeed& need : needs) {
    const std::uint64_t bytes = bytes_of(need, type);
    if (!shards.back().needs.empty() && shards.back().bytes + bytes > most) shards.emplace_back();
    shards.back().needs.push_back(&need);
    shards.back().bytes += bytes;
  }
  return shards;
}

std::string shard_name(std::size_t index, std::size_t count) {
  if (count == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, count);
}

Status write_json(const fs::path& path, const ordered_json& value) {
  std::ofstream out(path, std::ios::binary);
  out << value.dump(2) << '\n';
  out.close();
  if (!out) return {ErrorCode::kIo, fmt::format("{}: cannot write: {}", path.string(), std::strerror(errno))};
  return {};
}

ordered_json config_of(const SynthShape& shape, const HfFamily& family, DType type) {
  std::string architecture(family.model_type);
  architecture[0] = static_cast<char>(architecture[0] - 'a' + 'A');
  ordered_json config{{"architectures", {architecture + "ForCausalLM"}},
                      {"model_type", family.model_type},
                      {"hidden_size", shape.dim},
                      {"intermediate_size", shape.ffn_dim},
                      {"num_hidden_layers", shape.layers},
                      {"num_attention_heads", shape.heads},
                      {"num_key_value_heads", shape.kv_heads},
                      {"head_dim", shape.head_dim},
                      {"hidden_act", "silu"},
                      {"vocab_size", shape.vocab},
                      {"max_position_embeddings", shape.context},
                      {"rms_norm_eps", shape.rms_eps},
                      {"rope_theta", shape.rope_base},
                      {"tie_word_embeddings", shape.tied},
                      {"bos_token_id", kSynthBos},
                      {"eos_token_id", {kSynthEos, kSynthTurnEnd}},
                      {"torch_dtype", type == DType::kF32   ? "float32"
                                      : type == DType::kF16 ? "float16"
                                                            : "bfloat16"}};
  if (shape.rope_factor > 0) {
    config["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", shape.rope_factor},
                              {"low_freq_factor", kSynthLowFreq},
                              {"high_freq_factor", kSynthHighFreq},
                              {"original_max_position_embeddings", kSynthTrainedContext}};
  }
  return config;
}

ordered_json tokenizer_json(const SynthTokenizer& tokenizer) {
  ordered_json added = ordered_json::array();
  for (std::size_t i = 0; i < tokenizer.specials.size(); ++i) {
    added.push_back({{"id", kSynthBos + static_cast<std::int64_t>(i)},
                     {"content", tokenizer.specials[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  // Not an ordered object: that one looks every key up by going through all before it.
  nlohmann::json vocab = nlohmann::json::object();
  for (std::size_t id = 0; id < tokenizer.tokens.size(); ++id) {
    const auto n = static_cast<std::int64_t>(id);
    if (n < kSynthBos || n > kSynthTurnEnd) vocab[tokenizer.tokens[id]] = n;
  }
  const ordered_json byte_level{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  ordered_json model{{"type", "BPE"},
                     {"dropout", nullptr},
                     {"unk_token", nullptr},
                     {"continuing_subword_prefix", nullptr},
                     {"end_of_word_suffix", nullptr},
                     {"fuse_unk", false},
                     {"byte_fallback", false},
                     {"ignore_merges", false},
                     {"vocab", vocab},
                     {"merges", tokenizer.merges}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", byte_level},
          {"decoder", byte_level},
          {"model", model}};
}

Status write_tokenizer(const SynthShape& shape, const fs::path& folder) {
  const SynthTokenizer tokenizer = make_synth_tokenizer(shape.vocab);
  SHOAL_TRY(write_json(folder / "tokenizer.json", tokenizer_json(tokenizer)));
  SHOAL_TRY(write_json(folder / "tokenizer_config.json", {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                                          {"bos_token", tokenizer.tokens[kSynthBos]},
                                                          {"eos_token", tokenizer.tokens[kSynthTurnEnd]},
                                                          {"model_max_length", shape.context},
                                                          {"chat_template", tokenizer.chat_template}}));
  return write_json(folder / "generation_config.json",
                    {{"bos_token_id", kSynthBos}, {"eos_token_id", {kSynthEos, kSynthTurnEnd}}});
}

Status write_shard(const Shard& shard, const HfFamily& family, DType type, SynthStream& stream,
                   const fs::path& path) {
  SafetensorsWriter writer(path);
  for (const TensorNeed* need : shard.needs) {
    std::vector<std::int64_t> shape(need->dims.rbegin(), need->dims.rend());
    SHOAL_TRY(writer.add_tensor(hf_tensor_name(family, need->name), type, shape));
  }
  SHOAL_TRY(writer.begin());
  const auto sink = [&](std::span<const std::byte> bytes) { return writer.write(bytes); };
  for (const TensorNeed* need : shard.needs) SHOAL_TRY(stream.write(*need, type, sink));
  return writer.finish();
}

Status write_weights(const std::vector<Shard>& shards, const HfFamily& family, const SynthOptions& options,
                     const fs::path& folder, ThreadPool& pool) {
  std::uint64_t total = 0;
  for (const Shard& shard : shards) total += shard.bytes;
  SynthStream stream(options, total, pool);
  nlohmann::json weight_map = nlohmann::json::object();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shard_name(i, shards.size());
    SHOAL_TRY(write_shard(shards[i], family, options.type, stream, folder / name));
    for (const TensorNeed* need : shards[i].needs) weight_map[hf_tensor_name(family, need->name)] = name;
  }
  if (shards.size() == 1) return {};
  return write_json(folder / "model.safetensors.index.json",
                    {{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}});
}

Status write_all(const SynthShape& shape, const SynthOptions& options, std::uint64_t shard_bytes,
                 const fs::path& folder, ThreadPool& pool) {
  // Shapes are of families whose model_type is the architecture's name.
  const HfFamily* family = find_hf_family(shape.architecture);
  if (family == nullptr) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("shape '{}' cannot be written as a Hugging Face folder", shape.name)};
  }
  const std::vector<TensorNeed> needs = needed_tensors(synth_metadata(shape));
  SHOAL_TRY(write_json(folder / "config.json", config_of(shape, *family, options.type)));
  SHOAL_TRY(write_tokenizer(shape, folder));
  return write_weights(deal(needs, options.type, shard_bytes), *family, options, folder, pool);
}

}  // namespace

Status write_synth_folder(const SynthShape& shape, const SynthOptions& options, const fs::path& folder,
                          ThreadPool& pool, std::uint64_t shard_bytes) {
  if (options.type != DType::kF32 && options.type != DType::kF16 && options.type != DType::kBF16) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("a Hugging Face folder holds f32, f16 or bf16, not {}; {} belongs into a GGUF file",
                        dtype_name(options.type), dtype_name(options.type))};
  }
  fs::path target = folder.lexically_normal();
  if (!target.has_filename()) target = target.parent_path();  // "out/" is "out"
  std::error_code error;
  if (fs::exists(target, error) && (!fs::is_directory(target, error) || !fs::is_empty(target, error))) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("{}: is there already and not an empty folder", target.string())};
  }
  const fs::path part = target.string() + ".part";
  fs::remove_all(part, error);  // what an interrupted run left
  if (!fs::create_directories(part, error))
    return {ErrorCode::kIo, fmt::format("{}: cannot create: {}", part.string(), error.message())};
  const Status written = write_all(shape, options, shard_bytes, part, pool);
  if (written.ok()) {
    fs::rename(part, target, error);
    if (!error) return {};
  }
  std::error_code ignored;
  fs::remove_all(part, ignored);
  if (!written.ok()) return written;
  return {ErrorCode::kIo, fmt::format("{}: cannot take its name: {}", target.string(), error.message())};
}

}  // namespace shoal::formats
