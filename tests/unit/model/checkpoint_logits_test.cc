// Logits of models in every format they come in, against other implementations: checkpoints that Hugging Face
// transformers computed (tests/oracle/make_hf_fixtures.py), and the shared models, which llama.cpp did.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "kernels/dequantise.h"
#include "kernels/isa.h"
#include "material.h"
#include "model/model_rig.h"

namespace shoal::model {
namespace {

namespace fs = std::filesystem;

fs::path source_root() { return testing_material::source_tree(); }

fs::path shared_models() { return testing_material::shared() / "models"; }

std::vector<float> read_floats(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::vector<float> out(fs::file_size(path) / sizeof(float));
  in.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size() * sizeof(float)));
  return out;
}

// The first prompt of a reference file.
std::vector<TokenId> prompt_ids(const fs::path& reference) {
  std::ifstream in(reference);
  std::string line;
  std::getline(in, line);
  return nlohmann::json::parse(line)["prompt_ids"].get<std::vector<TokenId>>();
}

// Largest difference in units of the largest logit.
double relative_difference(const fs::path& model, const std::vector<TokenId>& prompt, const fs::path& logits,
                           std::size_t chunk) {
  test::Rig rig(
      model, {.threads = 2, .strict = true, .activations = kernels::Activations::kF32, .kv = KvDType::kF32});
  if (::testing::Test::HasFailure()) return 1;
  const std::vector<float> got = rig.run(prompt, chunk);
  const std::vector<float> want = read_floats(logits);
  EXPECT_EQ(got.size(), want.size());
  double difference = 0;
  double largest = 0;
  for (std::size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    EXPECT_TRUE(std::isfinite(got[i])) << i;
    difference = std::max(difference, std::fabs(static_cast<double>(got[i]) - want[i]));
    largest = std::max(largest, std::fabs(static_cast<double>(want[i])));
  }
  return difference / largest;
}

class TransformersFixture : public ::testing::TestWithParam<const char*> {};

TEST_P(TransformersFixture, LogitsAreThoseOfTransformers) {
  const fs::path folder = source_root() / "tests/oracle/data/hf" / GetParam();
  const double difference =
      relative_difference(folder, prompt_ids(folder / "reference.json"), folder / "logits.f32", 13);
  RecordProperty("relative", std::to_string(difference));
  EXPECT_LE(difference, 1e-4) << GetParam();
}

INSTANTIATE_TEST_SUITE_P(Families, TransformersFixture,
                         ::testing::Values("llama-llama3", "llama-yarn", "llama-linear", "mistral-window",
                                           "qwen2-window", "gemma2", "gemma3-text", "gemma3-nested"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// The checkpoint as a GGUF file of its architecture: the same numbers under GGUF's keys, norms as they are
// used.
void write_as_gguf(const formats::Checkpoint& from, const fs::path& path) {
  const formats::ModelMetadata& m = from.metadata();
  formats::GgufWriter writer(path);
  const auto key = [&](const char* suffix) { return m.architecture + "." + suffix; };
  const auto count = [&](const char* suffix, std::int64_t value) {
    writer.add_uint32(key(suffix), static_cast<std::uint32_t>(value));
  };
  writer.add_string("general.architecture", m.architecture);
  count("block_count", m.layers);
  count("embedding_length", m.dim);
  count("feed_forward_length", m.ffn_dim);
  count("attention.head_count", m.heads);
  count("attention.head_count_kv", m.kv_heads);
  count("attention.key_length", m.head_dim);
  count("attention.value_length", m.head_dim);
  count("context_length", m.context);
  count("attention.sliding_window", *std::max_element(m.windows.begin(), m.windows.end()));
  writer.add_float32(key("attention.layer_norm_rms_epsilon"), static_cast<float>(m.rms_eps));
  writer.add_float32(key("attention.scale"), static_cast<float>(m.attention_scale));
  writer.add_float32(key("rope.freq_base"), static_cast<float>(m.rope.freq_base));
  if (m.attention_softcap > 0) {
    writer.add_float32(key("attn_logit_softcapping"), static_cast<float>(m.attention_softcap));
    writer.add_float32(key("final_logit_softcapping"), static_cast<float>(m.final_softcap));
  }
  for (const auto& tensor : from.tensors()) {
    writer.add_tensor(tensor.name, DType::kF32,
                      std::span(tensor.dims).first(static_cast<std::size_t>(tensor.n_dims)));
  }
  ASSERT_TRUE(writer.begin().ok());
  for (const auto& tensor : from.tensors()) {
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    kernels::dequantise_row(tensor.type, tensor.bytes.data(), tensor.elements(), values.data());
    if (tensor.n_dims == 1) {
      for (float& v : values) v += static_cast<float>(m.norm_offset);
    }
    ASSERT_TRUE(writer.write(std::as_bytes(std::span(values))).ok());
  }
  ASSERT_TRUE(writer.finish().ok());
}

TEST(GemmaAsGguf, LogitsAreThoseOfTransformersToo) {
  for (const char* name : {"gemma2", "gemma3-text"}) {
    SCOPED_TRACE(name);
    const fs::path fixture = source_root() / "tests/oracle/data/hf" / name;
    const auto checkpoint = formats::Checkpoint::open(fixture);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
    const test::ScratchFolder scratch;
    write_as_gguf(*checkpoint, scratch / "model.gguf");
    EXPECT_LE(relative_difference(scratch / "model.gguf", prompt_ids(fixture / "reference.json"),
                                  fixture / "logits.f32", 32),
              1e-4);
  }
}

struct SharedModel {
  const char* folder;
  const char* model;
  const char* reference;
  const char* logits;
  double bound;
};

class SharedCheckpoint : public ::testing::TestWithParam<SharedModel> {};

TEST_P(SharedCheckpoint, LogitsAreTheReference) {
  const fs::path folder = shared_models() / GetParam().folder;
  if (!fs::exists(folder)) GTEST_SKIP() << "no " << folder << "; set SHOAL_SHARED";
  const double difference = relative_difference(
      folder / GetParam().model, prompt_ids(folder / GetParam().reference), folder / GetParam().logits, 512);
  RecordProperty("relative", std::to_string(difference));
  EXPECT_LE(difference, GetParam().bound);
}

// llama.cpp rounds activations to 8 bits for quantised weights: its logits differ by that, whatever we do.
constexpr double kRounded = 5e-2;

INSTANTIATE_TEST_SUITE_P(
    Formats, SharedCheckpoint,
    ::testing::Values(SharedModel{"stories260k", "hf", "reference.jsonl", "logits_0.f32", 1e-3},
                      SharedModel{"aidreams260k", "hf", "reference.jsonl", "logits_0.f32", 1e-3},
                      SharedModel{"babyllama-105", "hf", "reference.jsonl", "logits_0.f32", 1e-3},
                      SharedModel{"story-656k", ".", "reference.jsonl", "logits_0.f32", 1e-3},
                      SharedModel{"random-qwen2", ".", "reference.jsonl", "logits_0.f32", 1e-3},
                      SharedModel{"random-qwen3", ".", "reference.jsonl", "logits_0.f32", 1e-3},
                      SharedModel{"random-kquants", "random-q2_k.gguf", "reference-q2_k.jsonl",
                                  "logits-q2_k_0.f32", kRounded},
                      SharedModel{"random-kquants", "random-q3_k_m.gguf", "reference-q3_k_m.jsonl",
                                  "logits-q3_k_m_0.f32", kRounded},
                      SharedModel{"random-kquants", "random-iq4_nl.gguf", "reference-iq4_nl.jsonl",
                                  "logits-iq4_nl_0.f32", kRounded},
                      SharedModel{"random-kquants", "random-iq4_xs.gguf", "reference-iq4_xs.jsonl",
                                  "logits-iq4_xs_0.f32", kRounded}),
    [](const auto& info) {
      std::string name = std::string(info.param.folder) + "_" + info.param.reference;
      std::replace_if(
          name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; },
          '_');
      return name;
    });

}  // namespace
}  // namespace shoal::model
