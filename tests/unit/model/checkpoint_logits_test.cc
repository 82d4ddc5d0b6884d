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
