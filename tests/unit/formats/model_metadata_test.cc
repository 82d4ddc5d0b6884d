#include "formats/model_metadata.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "formats/gguf_builder.h"
#include "formats/tiny_model.h"

namespace shoal::formats {
namespace {

using test::says;
using test::ScratchFolder;
using test::TinyModel;

class ModelMetadataTest : public ::testing::Test {
 protected:
  // The metadata of a file, with the tensors checked too.
  Expected<ModelMetadata> read(const TinyModel& tiny, float fill = 0.0F) {
    auto file = tiny.write(folder_ / "tiny.gguf", fill);
    if (!file) return file.error();
    auto model = read_model_metadata(*file);
    if (!model) return model;
    SHOAL_TRY(check_model_tensors(*file, *model));
    return model;
  }
  std::string error(const TinyModel& tiny, float fill = 0.0F) {
    const auto model = read(tiny, fill);
    return model ? std::string("accepted") : model.error().message();
  }
  std::string error_with(const std::string& key, std::uint32_t value) {
    TinyModel tiny;
    tiny.numbers[key] = value;
    return error(tiny);
  }

  ScratchFolder folder_;
};

TEST_F(ModelMetadataTest, ReadsALlama) {
  const auto model = read(TinyModel());
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(model->layers, 2);
  EXPECT_EQ(model->dim, 64);
  EXPECT_EQ(model->heads, 4);
  EXPECT_EQ(model->kv_heads, 2);
  EXPECT_EQ(model->head_dim, 16);
  EXPECT_EQ(model->ffn_dim, 96);
  EXPECT_EQ(model->vocab, 50);
  EXPECT_EQ(model->context, 128);
  EXPECT_FLOAT_EQ(static_cast<float>(model->rms_eps), 1e-5F);
  EXPECT_EQ(model->rope.style, RopeStyle::kInterleaved);
  EXPECT_EQ(model->rope.freq_base, 10000.0);
  EXPECT_EQ(model->rope.dims, 16);
  EXPECT_TRUE(model->tied_embeddings);
  EXPECT_FALSE(model->attention_bias);
  EXPECT_FALSE(model->qk_norm);
  EXPECT_FALSE(model->has_sliding_window());
}

TEST_F(ModelMetadataTest, KeyValueHeadsDefaultToQueryHeads) {
  TinyModel tiny;
  tiny.numbers.erase("attention.head_count_kv");
  for (const char* name :
       {"blk.0.attn_k.weight", "blk.0.attn_v.weight", "blk.1.attn_k.weight", "blk.1.attn_v.weight"}) {
    tiny.tensors[name].dims = {64, 64};
  }
  const auto model = read(tiny);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(model->kv_heads, 4);
}

TEST_F(ModelMetadataTest, BiasesAndOutputComeFromTheTensors) {
  TinyModel tiny;
  for (const std::string& layer : {std::string("blk.0."), std::string("blk.1.")}) {
    tiny.tensors[layer + "attn_q.bias"] = {{64}};
    tiny.tensors[layer + "attn_k.bias"] = {{32}};
    tiny.tensors[layer + "attn_v.bias"] = {{32}};
    tiny.tensors[layer + "attn_output.bias"] = {{64}};
  }
  tiny.tensors["output.weight"] = {{64, 50}};
  const auto model = read(tiny);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_TRUE(model->attention_bias);
  EXPECT_TRUE(model->attention_output_bias);
  EXPECT_FALSE(model->tied_embeddings);

  tiny.tensors.erase("blk.1.attn_k.bias");
  EXPECT_TRUE(says(error(tiny), {"'blk.1.attn_k.bias' is missing"}));
}

TEST_F(ModelMetadataTest, Qwen3NeedsItsNormsAndTurnsHalves) {
  TinyModel tiny;
  tiny.architecture = "qwen3";
  EXPECT_TRUE(says(error(tiny), {"'blk.0.attn_q_norm.weight' is missing"}));
  for (const std::string& layer : {std::string("blk.0."), std::string("blk.1.")}) {
    tiny.tensors[layer + "attn_q_norm.weight"] = {{16}};
    tiny.tensors[layer + "attn_k_norm.weight"] = {{16}};
  }
  const auto model = read(tiny);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_TRUE(model->qk_norm);
  EXPECT_EQ(model->rope.style, RopeStyle::kHalfSplit);
}

TEST_F(ModelMetadataTest, Qwen2NeedsItsBiases) {
  TinyModel tiny;
  tiny.architecture = "qwen2";
  EXPECT_TRUE(says(error(tiny), {"'blk.0.attn_q.bias' is missing"}));
}

TEST_F(ModelMetadataTest, KeyLengthFreesHeadsFromTheWidth) {
  TinyModel tiny;
  tiny.numbers["attention.key_length"] = 32;
  tiny.numbers["attention.value_length"] = 32;
  for (const std::string& layer : {std::string("blk.0."), std::string("blk.1.")}) {
    tiny.tensors[layer + "attn_q.weight"].dims = {64, 128};
    tiny.tensors[layer + "attn_k.weight"].dims = {64, 64};
    tiny.tensors[layer + "attn_v.weight"].dims = {64, 64};
    tiny.tensors[layer + "attn_output.weight"].dims = {128, 64};
  }
  const auto model = read(tiny);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(model->head_dim, 32);
  tiny.numbers["attention.value_length"] = 16;
  EXPECT_TRUE(says(error(tiny), {"keys are 32 wide and values 16"}));
}

TEST_F(ModelMetadataTest, UnknownArchitectureNamesTheKnown) {
  TinyModel tiny;
  tiny.architecture = "mamba";
  EXPECT_TRUE(says(error(tiny), {"tiny.gguf", "'mamba'", "llama, mistral, qwen2, qwen3, gemma2, gemma3"}));
}

TEST_F(ModelMetadataTest, ExpertsAreRefused) {
  EXPECT_TRUE(says(error_with("expert_count", 4), {"mixture of 4 experts"}));
  EXPECT_EQ(error_with("expert_count", 0), "accepted");
}

TEST_F(ModelMetadataTest, AbsurdNumbersAreRefusedByKey) {
  const std::uint32_t most = std::numeric_limits<std::uint32_t>::max();
  for (const char* key : {"block_count", "embedding_length", "feed_forward_length", "attention.head_count",
                          "attention.head_count_kv", "context_length"}) {
    EXPECT_TRUE(says(error_with(key, 0), {"llama.", key, " is 0"}));
    EXPECT_TRUE(says(error_with(key, most), {"llama.", key, " is 4294967295"}));
    TinyModel without;
    without.numbers.erase(key);
    if (std::string(key) == "attention.head_count_kv") continue;  // defaults to the query heads
    EXPECT_TRUE(says(error(without), {key, "missing"}));
  }
  EXPECT_TRUE(says(error_with("attention.head_count_kv", 3), {"not a multiple of the 3 KV heads"}));
  EXPECT_TRUE(says(error_with("attention.head_count", 6), {"6 heads cannot share evenly"}));
  EXPECT_TRUE(says(error_with("attention.head_count", 64), {"1 wide"}));
  EXPECT_TRUE(says(error_with("attention.key_length", 15), {"a head is 15 wide"}));
  EXPECT_TRUE(says(error_with("rope.dimension_count", 18), {"rope.dimension_count is 18"}));
  EXPECT_TRUE(says(error_with("rope.dimension_count", 7), {"rope.dimension_count is 7"}));
}

TEST_F(ModelMetadataTest, NumbersThatAreNoneAreRefused) {
  for (const float value :
       {0.0F, -1.0F, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    TinyModel eps;
    eps.floats["attention.layer_norm_rms_epsilon"] = value;
    EXPECT_TRUE(says(error(eps), {"layer_norm_rms_epsilon"})) << value;
    TinyModel base;
    base.floats["rope.freq_base"] = value;
    EXPECT_TRUE(says(error(base), {"rope.freq_base"})) << value;
  }
  TinyModel text;
  text.numbers.erase("block_count");
  text.strings["block_count"] = "two";
  EXPECT_TRUE(says(error(text), {"llama.block_count", "string"}));
}

TEST_F(ModelMetadataTest, VocabularyMustAgreeWithTheEmbedding) {
  EXPECT_TRUE(says(error_with("vocab_size", 51), {"vocab_size is 51", "50 rows"}));
}

TEST_F(ModelMetadataTest, RopeScalingIsRead) {
  TinyModel linear;
  linear.strings["rope.scaling.type"] = "linear";
  linear.floats["rope.scaling.factor"] = 4.0F;
  auto model = read(linear);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(model->rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(model->rope.factor, 4.0);

  TinyModel old;
  old.floats["rope.scale_linear"] = 2.0F;
  model = read(old);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(model->rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(model->rope.factor, 2.0);

  TinyModel yarn = linear;
  yarn.strings["rope.scaling.type"] = "yarn";
  yarn.numbers["rope.scaling.original_context_length"] = 32;
  model = read(yarn);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(model->rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(model->rope.original_context, 32);
  EXPECT_EQ(model->rope.beta_fast, 32.0);

  TinyModel unknown = linear;
  unknown.strings["rope.scaling.type"] = "longrope";
  EXPECT_TRUE(says(error(unknown), {"'longrope'", "none, linear, yarn"}));
}

TEST_F(ModelMetadataTest, RopeFactorsComeFromTheirTensor) {
  TinyModel tiny;
  tiny.tensors["rope_freqs.weight"] = {{8}};
  const auto model = read(tiny, 8.0F);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(model->rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(model->rope.factors, std::vector<float>(8, 8.0F));
  EXPECT_TRUE(says(error(tiny, 0.0F), {"rope_freqs.weight", "0"}));
  tiny.tensors["rope_freqs.weight"] = {{9}};
  EXPECT_TRUE(says(error(tiny, 8.0F), {"rope_freqs.weight", "9 elements"}));
}

TEST_F(ModelMetadataTest, Llama3FactorsKeepHighAndStretchLowFrequencies) {
  const auto factors = llama3_rope_factors(64, 500000.0, 32.0, 1.0, 4.0, 8192);
  ASSERT_EQ(factors.size(), 32U);
  EXPECT_EQ(factors.front(), 1.0F);
  EXPECT_EQ(factors.back(), 32.0F);
  for (std::size_t i = 1; i < factors.size(); ++i) EXPECT_GE(factors[i], factors[i - 1]);
}

TEST_F(ModelMetadataTest, SlidingWindowsFollowThePattern) {
  TinyModel tiny;
  tiny.numbers["attention.sliding_window"] = 64;
  auto model = read(tiny);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(model->windows, (std::vector<std::int64_t>{64, 64}));
  tiny.numbers["attention.sliding_window_pattern"] = 2;
  model = read(tiny);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(model->windows, (std::vector<std::int64_t>{64, 0}));
  EXPECT_TRUE(model->has_sliding_window());
}

TEST_F(ModelMetadataTest, MissingTensorIsNamed) {
  for (const auto& [name, tensor] : TinyModel().tensors) {
    TinyModel tiny;
    tiny.tensors.erase(name);
    EXPECT_TRUE(says(error(tiny), {"tiny.gguf", "'" + name + "' is missing"}));
  }
}

TEST_F(ModelMetadataTest, WrongShapeShowsBoth) {
  for (const auto& [name, tensor] : TinyModel().tensors) {
    if (name == "token_embd.weight") continue;  // its rows are the vocabulary
    TinyModel tiny;
    tiny.tensors[name].dims[0] += 2;
    EXPECT_TRUE(says(error(tiny), {"'" + name + "' has the shape [", "expected is ["}));
  }
  TinyModel narrow;
  narrow.tensors["token_embd.weight"].dims = {32, 50};
  EXPECT_TRUE(says(error(narrow), {"'token_embd.weight'", "[32, 50]", "[64, 50]"}));
}

TEST_F(ModelMetadataTest, GemmaThreeBringsItsNormsItsWindowsAndTwoRotaryBases) {
  TinyModel tiny;
  tiny.architecture = "gemma3";
  tiny.numbers["attention.sliding_window"] = 32;
  tiny.numbers["attention.sliding_window_pattern"] = 2;
  tiny.floats["rope.freq_base"] = 1e6F;
  EXPECT_TRUE(says(error(tiny), {"attn_q_norm.weight' is missing"}));
  for (const std::string& layer : {std::string("blk.0."), std::string("blk.1.")}) {
    for (const char* norm : {"attn_q_norm", "attn_k_norm"}) tiny.tensors[layer + norm + ".weight"] = {{16}};
    for (const char* norm : {"post_attention_norm", "post_ffw_norm"})
      tiny.tensors[layer + norm + ".weight"] = {{64}};
  }
  const auto model = read(tiny);
  ASSERT_TRUE(model.ok()) << model.error().message();
  EXPECT_EQ(model->windows, (std::vector<std::int64_t>{32, 0}));
  EXPECT_EQ(model->rope.freq_base, 1e6);
  ASSERT_TRUE(model->window_rope);
  EXPECT_EQ(model->window_rope->freq_base, 1e4);
  EXPECT_EQ(model->embedding_scale, 8);
  EXPECT_EQ(model->norm_offset, 0);
  EXPECT_EQ(model->activation, Activation::kGeluTanh);
  // Without a pattern the family's holds: five of six slide.
  tiny.numbers.erase("attention.sliding_window_pattern");
  EXPECT_EQ(read(tiny)->windows, (std::vector<std::int64_t>{32, 32}));
}

TEST_F(ModelMetadataTest, UnsupportedTypesAreNamed) {
  TinyModel tiny;
  tiny.tensors["blk.1.ffn_up.weight"].type = DType::kI8;
  EXPECT_TRUE(says(error(tiny), {"'blk.1.ffn_up.weight' is i8"}));
  TinyModel vector;
  vector.tensors["output_norm.weight"].type = DType::kQ8_0;
  EXPECT_TRUE(says(error(vector), {"'output_norm.weight' is a vector in q8_0"}));
}

TEST_F(ModelMetadataTest, TensorsThatWouldBeIgnoredAreRefused) {
  TinyModel layer;
  layer.tensors["blk.2.attn_norm.weight"] = {{64}};
  EXPECT_TRUE(says(error(layer), {"'blk.2.attn_norm.weight'", "no place in a llama model of 2 layers"}));
  TinyModel bias;
  bias.tensors["blk.0.ffn_up.bias"] = {{96}};
  EXPECT_TRUE(says(error(bias), {"'blk.0.ffn_up.bias'"}));
}

}  // namespace
}  // namespace shoal::formats
