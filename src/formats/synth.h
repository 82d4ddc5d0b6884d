// Model files with random weights and the shapes of real models: for tests, capacity trials and benchmarks
// without downloads. They load wherever a GGUF file of their architecture does.
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

// Writes the file whole or not at all. Fails with kInvalidArgument (a type that cannot be made) or kIo.
Status write_synth(const SynthShape& shape, const SynthOptions& options, const std::filesystem::path& path,
                   ThreadPool& pool);

}  // namespace shoal::formats
