// config.json of every family, and those that are refused.
#include "formats/hf_model_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "formats/gguf_builder.h"

namespace shoal::formats {
namespace {

using nlohmann::json;
using test::says;

Expected<HfModelConfig> read(const json& config) {
  SHOAL_ASSIGN(file, JsonFile::parse(config.dump(), "config.json"));
  return read_hf_model_config(file);
}

std::string error_of(const json& config) {
  const auto got = read(config);
  return got ? "" : got.error().message();
}

json base(const char* type) {
  return {{"model_type", type},       {"hidden_size", 64},
          {"intermediate_size", 96},  {"num_hidden_layers", 8},
          {"num_attention_heads", 4}, {"num_key_value_heads", 2},
          {"vocab_size", 100},        {"max_position_embeddings", 4096}};
}

json with(json config, const json& more) {
  config.merge_patch(more);
  return config;
}

ModelMetadata model_of(const json& config) {
  const auto got = read(config);
  EXPECT_TRUE(got.ok()) << got.error().message();
  return got ? got->model : ModelMetadata();
}

TEST(HfModelConfig, LlamaTakesItsDefaults) {
  json config = base("llama");
  config.erase("num_key_value_heads");
  const ModelMetadata m = model_of(config);
  EXPECT_EQ(m.kv_heads, 4);
  EXPECT_EQ(m.head_dim, 16);
  EXPECT_EQ(m.rms_eps, 1e-6);
  EXPECT_EQ(m.rope.freq_base, 10000);
  EXPECT_FALSE(m.tied_embeddings);
  EXPECT_FALSE(m.has_sliding_window());
  EXPECT_NEAR(m.attention_scale, 0.25, 1e-12);
}

TEST(HfModelConfig, MistralSlidesUnlessTheWindowIsNull) {
  EXPECT_EQ(model_of(base("mistral")).windows, std::vector<std::int64_t>(8, 4096));
  EXPECT_EQ(model_of(with(base("mistral"), {{"sliding_window", 32}})).windows,
            std::vector<std::int64_t>(8, 32));
  json null = base("mistral");
  null["sliding_window"] = nullptr;
  EXPECT_FALSE(model_of(null).has_sliding_window());
}

TEST(HfModelConfig, QwenSlidesAboveMaxWindowLayersWhereAskedTo) {
  const json on{{"use_sliding_window", true}, {"sliding_window", 32}, {"max_window_layers", 6}};
  const ModelMetadata m = model_of(with(base("qwen2"), on));
  EXPECT_EQ(m.windows, (std::vector<std::int64_t>{0, 0, 0, 0, 0, 0, 32, 32}));
  EXPECT_TRUE(m.attention_bias);
  EXPECT_FALSE(model_of(with(base("qwen2"), {{"sliding_window", 32}})).has_sliding_window());
  EXPECT_EQ(model_of(base("qwen3")).head_dim, 128);
  EXPECT_TRUE(model_of(base("qwen3")).qk_norm);
}

TEST(HfModelConfig, GemmaThreeIsAllInData) {
  const ModelMetadata m = model_of(with(base("gemma3_text"), {{"sliding_window", 512}, {"head_dim", 32}}));
  EXPECT_EQ(m.windows, (std::vector<std::int64_t>{512, 512, 512, 512, 512, 0, 512, 512}));
  EXPECT_EQ(m.rope.freq_base, 1e6);
  ASSERT_TRUE(m.window_rope);
  EXPECT_EQ(m.window_rope->freq_base, 10000);
  EXPECT_EQ(m.attention_scale, 1.0 / 16);
  EXPECT_EQ(m.embedding_scale, 8);
  EXPECT_EQ(m.norm_offset, 1);
  EXPECT_EQ(m.activation, Activation::kGeluTanh);
  EXPECT_TRUE(m.post_norms && m.qk_norm && m.tied_embeddings);
  EXPECT_EQ(m.final_softcap, 0);
}

TEST(HfModelConfig, GemmaThreeNestedTakesTheTextPartWithItsDefaults) {
  const json text{
      {"model_type", "gemma3_text"}, {"hidden_size", 64},
      {"intermediate_size", 96},     {"num_hidden_layers", 6},
      {"sliding_window", 1024},      {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}}};
  const ModelMetadata m = model_of({{"model_type", "gemma3"}, {"text_config", text}});
  EXPECT_EQ(m.heads, 8);
  EXPECT_EQ(m.kv_heads, 4);
  EXPECT_EQ(m.vocab, 262208);
  EXPECT_EQ(m.context, 131072);
  EXPECT_EQ(m.rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(m.rope.factor, 8);
  EXPECT_EQ(m.window_rope->scaling, RopeScaling::kNone);
  EXPECT_TRUE(says(error_of({{"model_type", "gemma3"}}), {"text_config"}));
}

TEST(HfModelConfig, GemmaTwoHasItsCapsUnlessTheyAreNull) {
  const ModelMetadata m = model_of(base("gemma2"));
  EXPECT_EQ(m.attention_softcap, 50);
  EXPECT_EQ(m.final_softcap, 30);
  EXPECT_EQ(m.windows[0], 4096);
  EXPECT_EQ(m.windows[1], 0);
  json null = base("gemma2");
  null["final_logit_softcapping"] = nullptr;
  EXPECT_EQ(model_of(null).final_softcap, 0);
}

TEST(HfModelConfig, RopeScalingsAreThePublishedOnes) {
  const auto scaled = [](const json& scaling) { return with(base("llama"), {{"rope_scaling", scaling}}); };
  const ModelMetadata yarn =
      model_of(scaled({{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 4096}}));
  EXPECT_EQ(yarn.rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(yarn.context, 16384);
  EXPECT_NEAR(yarn.rope.attn_factor, 1, 1e-12);
  EXPECT_EQ(model_of(scaled({{"type", "linear"}, {"factor", 2.0}})).rope.factor, 2);
  const ModelMetadata llama3 = model_of(scaled({{"rope_type", "llama3"},
                                                {"factor", 8.0},
                                                {"low_freq_factor", 1.0},
                                                {"high_freq_factor", 4.0},
                                                {"original_max_position_embeddings", 32}}));
  EXPECT_EQ(llama3.rope.factors.size(), 8U);
  EXPECT_EQ(llama3.context, 4096);
  const ModelMetadata newer =
      model_of(with(base("gemma3_text"),
                    {{"rope_parameters",
                      {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 5e5}}},
                       {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 2e4}}}}}}));
  EXPECT_EQ(newer.rope.freq_base, 5e5);
  EXPECT_EQ(newer.rope.factor, 8);
  EXPECT_EQ(newer.window_rope->freq_base, 2e4);
  EXPECT_TRUE(says(error_of(scaled({{"type", "dynamic"}, {"factor", 2.0}})), {"dynamic", "yarn"}));
  EXPECT_TRUE(says(error_of(scaled({{"type", "linear"}})), {"rope_scaling.factor", "missing"}));
  EXPECT_TRUE(says(error_of(scaled({{"type", "linear"}, {"factor", -1}})), {"rope_scaling.factor", "-1"}));
}

TEST(HfModelConfig, UnknownFamiliesNameTheKnown) {
  EXPECT_TRUE(says(error_of(base("mixtral")), {"mixtral", "llama", "mistral", "qwen2", "qwen3", "gemma3"}));
  EXPECT_TRUE(says(error_of(json::object()), {"model_type"}));
}

TEST(HfModelConfig, WhatIsNotBuiltIsRefusedByName) {
  EXPECT_TRUE(says(error_of(with(base("llama"), {{"quantization_config", {{"quant_method", "awq"}}}})),
                   {"awq", "--weights"}));
  EXPECT_TRUE(says(error_of(with(base("llama"), {{"mlp_bias", true}})), {"mlp_bias"}));
  EXPECT_TRUE(says(error_of(with(base("llama"), {{"hidden_act", "relu"}})), {"relu", "silu"}));
  EXPECT_TRUE(says(error_of(with(base("gemma3_text"), {{"use_bidirectional_attention", true}})),
                   {"use_bidirectional_attention"}));
}

TEST(HfModelConfig, AbsurdNumbersAreRefusedByName) {
  const std::vector<std::pair<const char*, json>> wrong{{"hidden_size", 0},
                                                        {"hidden_size", -8},
                                                        {"hidden_size", 1e30},
                                                        {"hidden_size", "64"},
                                                        {"hidden_size", 66},
                                                        {"num_hidden_layers", 5000},
                                                        {"num_attention_heads", 3},
                                                        {"vocab_size", 1 << 30},
                                                        {"num_key_value_heads", 3},
                                                        {"head_dim", 7},
                                                        {"rms_norm_eps", 0},
                                                        {"rms_norm_eps", 2.0},
                                                        {"rope_theta", -1},
                                                        {"sliding_window", -1},
                                                        {"layer_types", json::array({"full_attention"})},
                                                        {"max_position_embeddings", 0}};
  for (const auto& [field, value] : wrong) {
    json config = base("mistral");
    config[field] = value;
    EXPECT_NE(error_of(config), "") << field << " " << value;
    EXPECT_TRUE(says(error_of(config), {"config.json: "}));
  }
}

}  // namespace
}  // namespace shoal::formats
