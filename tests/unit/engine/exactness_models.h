// The models and layouts of the exactness matrix, as data: what exactness_test.cc runs through.
//
// Thread-safety: none; for one test at a time.
// Ownership: a prepared model's file is in the folder it was given, or where it lies.

#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "formats/hf_family.h"
#include "formats/safetensors_writer.h"
#include "formats/synth.h"
#include "formats/synth_stream.h"
#include "material.h"
#include "tensor/dtype.h"

namespace shoal::engine {

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "shoal_exact_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Where the model is to be found, made in the folder if need be; empty where there is none on this machine.
using ModelSource = std::function<std::filesystem::path(const std::filesystem::path& scratch)>;

inline ModelSource shared_model(const char* file) {
  return [file](const std::filesystem::path&) {
    const auto path = testing_material::shared() / "models" / file;
    return std::filesystem::exists(path) ? path : std::filesystem::path();
  };
}

inline ThreadPool::Options one_thread() {
  return {.threads = 1, .spin = std::chrono::microseconds(0), .pin = false};
}

inline ModelSource synthetic(formats::SynthShape shape, DType type) {
  return [=](const std::filesystem::path& scratch) {
    const auto path = scratch / "model.gguf";
    ThreadPool pool(one_thread());
    const Status written = formats::write_synth(shape, {.type = type, .seed = 7, .progress = {}}, path, pool);
    EXPECT_TRUE(written.ok()) << written.message();
    return path;
  };
}

inline ModelSource synthetic(const char* shape, DType type) {
  return synthetic(*formats::find_synth_shape(shape), type);
}

// The demo model where it has been fetched (scripts/demo_model), else random weights of its shape.
inline ModelSource smollm2() {
  return [](const std::filesystem::path& scratch) {
    const char* cache = std::getenv("XDG_CACHE_HOME");
    const char* home = std::getenv("HOME");
    const auto folder = cache != nullptr ? std::filesystem::path(cache)
                                         : std::filesystem::path(home != nullptr ? home : "") / ".cache";
    const auto fetched = folder / "shoal/SmolLM2-135M-Instruct.Q4_1.gguf";
    return std::filesystem::exists(fetched) ? fetched : synthetic("smollm2-135m", DType::kQ4_1)(scratch);
  };
}

// Gemma 3's blocks, one layer in six without a window, at a size that tests can wait for.
inline constexpr formats::SynthShape kSmallGemma3 = {.name = "gemma3-small",
                                                     .architecture = "gemma3",
                                                     .layers = 7,
                                                     .dim = 320,
                                                     .heads = 4,
                                                     .kv_heads = 1,
                                                     .head_dim = 128,
                                                     .ffn_dim = 1184,
                                                     .vocab = 3000,
                                                     .context = 1024,
                                                     .rms_eps = 1e-6,
                                                     .rope_base = 1e6,
                                                     .tied = true,
                                                     .rope_factor = 0};

// As a Hugging Face folder with random weights.
inline ModelSource small_gemma3(int window) {
  return [window](const std::filesystem::path& scratch) {
    const formats::SynthShape& shape = kSmallGemma3;
    // The tokenizer of any other family will do.
    formats::SynthShape llama = shape;
    llama.architecture = "llama";
    llama.layers = 1;
    ThreadPool pool(one_thread());
    const formats::SynthOptions options{.type = DType::kBF16, .seed = 7, .progress = {}};
    const auto folder = scratch / "gemma3";
    EXPECT_TRUE(formats::write_synth_folder(llama, options, folder, pool).ok());
    const nlohmann::json config{
        {"model_type", "gemma3_text"},        {"hidden_size", shape.dim},
        {"intermediate_size", shape.ffn_dim}, {"num_hidden_layers", shape.layers},
        {"num_attention_heads", shape.heads}, {"num_key_value_heads", shape.kv_heads},
        {"head_dim", shape.head_dim},         {"query_pre_attn_scalar", shape.head_dim},
        {"vocab_size", shape.vocab},          {"max_position_embeddings", shape.context},
        {"rms_norm_eps", shape.rms_eps},      {"rope_theta", shape.rope_base},
        {"sliding_window", window},           {"sliding_window_pattern", 6}};
    std::ofstream(folder / "config.json") << config.dump();
    formats::ModelMetadata metadata = formats::synth_metadata(shape);
    metadata.post_norms = true;
    metadata.qk_norm = true;
    const auto needs = formats::needed_tensors(metadata);
    const formats::HfFamily& family = *formats::find_hf_family("gemma3_text");
    formats::SafetensorsWriter writer(folder / "model.safetensors");
    formats::SynthStream stream(options, 0, pool);
    Status written;
    const auto attempt = [&](auto&& step) {
      if (written.ok()) written = step();
    };
    for (const auto& need : needs) {
      const std::vector<std::int64_t> rows(need.dims.rbegin(), need.dims.rend());
      attempt([&] { return writer.add_tensor(hf_tensor_name(family, need.name), options.type, rows); });
    }
    attempt([&] { return writer.begin(); });
    const auto sink = [&](std::span<const std::byte> bytes) { return writer.write(bytes); };
    for (const auto& need : needs) attempt([&] { return stream.write(need, options.type, sink); });
    attempt([&] { return writer.finish(); });
    EXPECT_TRUE(written.ok()) << written.message();
    return folder;
  };
}

struct ExactModel {
  const char* name;
  ModelSource source;
  std::int32_t context = 0;
  std::int64_t vocabulary = 0;
  std::int32_t layers = 0;
  std::int32_t most_tp = 0;  // parts that its attention output has
  // Uneven shares that fall on those parts' borders.
  std::vector<std::vector<std::int32_t>> splits = {};
  std::optional<DType> weights = {};
  bool f32 = false;  // KV and activations
};

inline void PrintTo(const ExactModel& model, std::ostream* out) { *out << model.name; }

inline std::vector<ExactModel> exact_models() {
  const formats::SynthShape qwen3{.name = "qwen3-small",
                                  .architecture = "qwen3",
                                  .layers = 4,
                                  .dim = 256,
                                  .heads = 8,
                                  .kv_heads = 4,
                                  .head_dim = 128,
                                  .ffn_dim = 736,
                                  .vocab = 5000,
                                  .context = 1024,
                                  .rms_eps = 1e-6,
                                  .rope_base = 1e6,
                                  .tied = true,
                                  .rope_factor = 0};
  const std::vector<std::vector<std::int32_t>> of_four = {{3, 1}, {1, 2, 1}};
  const std::vector<std::vector<std::int32_t>> of_eight = {{3, 1}, {5, 2, 1}};
  const std::vector<std::vector<std::int32_t>> of_nine = {{2, 1}, {4, 3, 2}};
  return {
      {"stories260k", shared_model("stories260k/stories260K-f32.gguf"), 512, 512, 5, 8, of_eight},
      {"stories260k_f32",
       shared_model("stories260k/stories260K-f32.gguf"),
       512,
       512,
       5,
       8,
       of_eight,
       {},
       true},
      {"aidreams260k", shared_model("aidreams260k/aidreams260K-f32.gguf"), 128, 512, 4, 4, of_four},
      {"babyllama105", shared_model("babyllama-105/babyllama-105-f32.gguf"), 256, 105, 5, 8, of_eight},
      {"story656k_bf16", shared_model("story-656k/story-656k-bf16.gguf"), 512, 2048, 2, 8, of_eight},
      {"story656k_q8_0", shared_model("story-656k/story-656k-q8_0.gguf"), 512, 2048, 2, 4, of_four},
      {"story656k_q4_0", shared_model("story-656k/story-656k-q4_0.gguf"), 512, 2048, 2, 4, of_four},
      {"story656k_q5_1", shared_model("story-656k/story-656k-q5_1.gguf"), 512, 2048, 2, 4, of_four},
      {"kquants_q4_k", shared_model("random-kquants/random-q4_k_m.gguf"), 512, 512, 1, 8, of_eight},
      {"kquants_q6_k", shared_model("random-kquants/random-q6_k.gguf"), 512, 512, 1, 8, of_eight},
      {"qwen2", shared_model("random-qwen2/random-qwen2-bf16.gguf"), 512, 512, 3, 4, of_four},
      {"qwen3", shared_model("random-qwen3/random-qwen3-bf16.gguf"), 512, 512, 3, 4, of_four},
      {"qwen3_q8_0", synthetic(qwen3, DType::kQ8_0), 1024, 5000, 4, 8, of_eight},
      {"gemma3", small_gemma3(100), 1024, 3000, 7, 4, of_four},
      {"gemma3_as_q8_0", small_gemma3(320), 1024, 3000, 7, 4, of_four, DType::kQ8_0},
      {"llama_tiny_8k", synthetic("llama-tiny-8k", DType::kQ8_0), 8192, 49152, 6, 9, of_nine},
      {"smollm2", smollm2(), 8192, 49152, 30, 9, of_nine},
  };
}

// Ranks as the options name them. uneven: an uneven split of the heads, of the layers, or both.
struct ExactLayout {
  std::int32_t tp = 1;
  std::int32_t pp = 1;
  bool uneven_heads = false;
  bool uneven_layers = false;

  std::string name() const {
    return "tp" + std::to_string(tp) + "_pp" + std::to_string(pp) + (uneven_heads ? "_heads" : "") +
           (uneven_layers ? "_layers" : "");
  }
  bool possible(const ExactModel& model) const { return tp <= model.most_tp && pp <= model.layers; }
  std::vector<std::int32_t> split(const ExactModel& model) const {
    return uneven_heads ? model.splits[static_cast<std::size_t>(tp - 2)] : std::vector<std::int32_t>{};
  }
  // One layer in the first stage and, where there are three, in the last.
  std::vector<std::int32_t> stage_layers(const ExactModel& model) const {
    if (!uneven_layers || pp > model.layers) return {};
    if (pp == 2) return {1, model.layers - 1};
    return {1, model.layers - 2, 1};
  }
};

// Every layout of up to 8 ranks with tp to 4 and pp to 3, then uneven ones.
inline std::vector<ExactLayout> exact_layouts() {
  std::vector<ExactLayout> layouts;
  for (std::int32_t tp = 1; tp <= 4; ++tp) {
    for (std::int32_t pp = 1; pp <= 3; ++pp) {
      if (tp * pp > 1 && tp * pp <= 8) layouts.push_back({tp, pp});
    }
  }
  layouts.push_back({.tp = 2, .pp = 1, .uneven_heads = true});
  layouts.push_back({.tp = 3, .pp = 1, .uneven_heads = true});
  layouts.push_back({.tp = 1, .pp = 3, .uneven_layers = true});
  layouts.push_back({.tp = 2, .pp = 2, .uneven_heads = true, .uneven_layers = true});
  return layouts;
}

}  // namespace shoal::engine
