// Models with random weights and the shapes of real ones, as GGUF files or Hugging Face folders: for tests,
// capacity trials and benchmarks without downloads. They load wherever others of their architecture do.
//
// Thread-safety: pure functions; write_synth runs on the pool it is given.
// A file's bytes depend on (shape, type, seed) alone.

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>

#include "core/expected.h"
#include "core/thread_pool.h"
#include "formats/model_metadata.h"
#include "tensor/dtype.h"

namespace shoal::formats {

struct SynthShape {
  std::string_view name;
  std::string_view architecture;
  std::int64_t layers;
  std::int64_t dim;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  std::int64_t ffn_dim;
  std::int64_t vocab;
  std::int64_t context;
  double rms_eps;
  double rope_base;
  bool tied;
  // Llama 3.1's rope scaling over 8,192 trained tokens; 0 for none.
  double rope_factor;
};

// Of Llama 3.1's rope scaling, in all shapes that have it.
inline constexpr double kSynthLowFreq = 1.0;
inline constexpr double kSynthHighFreq = 4.0;
inline constexpr std::int64_t kSynthTrainedContext = 8192;

std::span<const SynthShape> synth_shapes();
// Fails with kInvalidArgument, naming the shapes there are.
Expected<SynthShape> find_synth_shape(std::string_view name);
// What reading the shape's file gives.
ModelMetadata synth_metadata(const SynthShape& shape);

// The type a matrix with rows of this length gets when `wanted` is asked for: itself where rows are whole
// blocks, else q4_k -> q5_0, q5_k -> q5_1, q6_k -> q8_0 and, where 32 does not divide the row either, f16.
// The same substitutes that llama.cpp's quantiser takes.
DType synth_type(DType wanted, std::int64_t row_length);

struct SynthOptions {
  DType type = DType::kQ8_0;
  std::uint64_t seed = 1;
  // Called between pieces, on the calling thread; bytes of tensor data.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

// Writes a GGUF file, whole or not at all. Fails with kInvalidArgument (a type that cannot be made) or kIo.
Status write_synth(const SynthShape& shape, const SynthOptions& options, const std::filesystem::path& path,
                   ThreadPool& pool);

// Writes the same model as a Hugging Face folder: config.json, safetensors in shards of at most shard_bytes
// (a tensor above that has one of its own), generation_config.json, tokenizer.json and tokenizer_config.json.
// The folder appears whole or not at all; one that is there already and not empty is left alone. type: f32,
// f16 or bf16. Fails with kInvalidArgument or kIo.
Status write_synth_folder(const SynthShape& shape, const SynthOptions& options,
                          const std::filesystem::path& folder, ThreadPool& pool,
                          std::uint64_t shard_bytes = 2'000'000'000);

}  // namespace shoal::formats
