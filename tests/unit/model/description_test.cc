#include "model/description.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace shoal::model {
namespace {

formats::ModelMetadata metadata() {
  formats::ModelMetadata m;
  m.architecture = "llama";
  m.layers = 4;
  m.dim = 64;
  m.heads = 8;
  m.kv_heads = 2;
  m.head_dim = 16;
  m.ffn_dim = 96;
  m.vocab = 50;
  m.context = 512;
  m.rms_eps = 1e-6;
  m.rope.dims = 16;
  m.windows = {0, 0, 0, 0};
  return m;
}

TEST(Description, CarriesDimensionsAndSwitches) {
  formats::ModelMetadata m = metadata();
  m.qk_norm = true;
  m.attention_bias = true;
  m.tied_embeddings = true;
  const ModelDescription d = describe(m);
  EXPECT_EQ(d.hidden, 64);
  EXPECT_EQ(d.vocabulary, 50);
  EXPECT_TRUE(d.tied_embeddings);
  ASSERT_EQ(d.layers.size(), 4U);
  const AttentionBlock& block = d.layers[3].attention;
  EXPECT_TRUE(block.qk_norm);
  EXPECT_TRUE(block.qkv_bias);
  EXPECT_FALSE(block.output_bias);
  EXPECT_FLOAT_EQ(block.scale, 0.25F);
  EXPECT_EQ(block.layer_in_group, 3);
  EXPECT_EQ(d.layers[3].feed_forward.width, 96);
}

TEST(Description, LayersOfOneWindowShareAGroupAndFullAttentionComesFirst) {
  formats::ModelMetadata m = metadata();
  m.windows = {128, 0, 128, 0};
  const ModelDescription d = describe(m);
  ASSERT_EQ(d.kv_groups.size(), 2U);
  EXPECT_EQ(d.kv_groups[0].window, 0);
  EXPECT_EQ(d.kv_groups[0].layers, (std::vector<std::int32_t>{1, 3}));
  EXPECT_EQ(d.kv_groups[1].window, 128);
  EXPECT_EQ(d.kv_groups[1].layers, (std::vector<std::int32_t>{0, 2}));
  EXPECT_EQ(d.kv_groups[1].id, KvGroupId(1));
  EXPECT_EQ(d.layers[2].attention.kv_group, 1);
  EXPECT_EQ(d.layers[2].attention.layer_in_group, 1);
  EXPECT_EQ(d.kv_groups[0].kv_heads, 2);
  EXPECT_EQ(d.kv_groups[0].head_dim, 16);
}

TEST(Description, AWindowAsLongAsTheContextIsNone) {
  formats::ModelMetadata m = metadata();
  m.windows = {512, 0, 600, 0};
  EXPECT_EQ(describe(m).kv_groups.size(), 1U);
}

TEST(RopeOf, PlainFrequenciesFallGeometrically) {
  formats::RopeSettings s;
  s.dims = 8;
  s.freq_base = 10000;
  const kernels::Rope rope = rope_of(s);
  ASSERT_EQ(rope.inverse_frequency.size(), 4U);
  for (int i = 0; i < 4; ++i) {
    EXPECT_FLOAT_EQ(rope.inverse_frequency[static_cast<std::size_t>(i)],
                    static_cast<float>(std::pow(10.0, -i)));
  }
  EXPECT_TRUE(rope.adjacent_pairs);
  EXPECT_EQ(rope.magnitude, 1);
}

TEST(RopeOf, StyleChoosesThePairs) {
  formats::RopeSettings s;
  s.dims = 8;
  s.style = formats::RopeStyle::kHalfSplit;
  EXPECT_FALSE(rope_of(s).adjacent_pairs);
}

TEST(RopeOf, LinearAndPerPairScalingDivide) {
  formats::RopeSettings s;
  s.dims = 4;
  s.freq_base = 100;
  s.scaling = formats::RopeScaling::kLinear;
  s.factor = 4;
  EXPECT_FLOAT_EQ(rope_of(s).inverse_frequency[0], 0.25F);
  EXPECT_FLOAT_EQ(rope_of(s).inverse_frequency[1], 0.025F);
  s.scaling = formats::RopeScaling::kLlama3;
  s.factors = {1, 8};
  EXPECT_FLOAT_EQ(rope_of(s).inverse_frequency[0], 1);
  EXPECT_FLOAT_EQ(rope_of(s).inverse_frequency[1], 0.1F / 8);
}

// By hand: over 6283 tokens (2 pi 1000) pair i of these turns 1000 * 10^-i times. The ramp goes from the pair
// that turns 100 times, 1, to the one that turns once, 3: pair 2 keeps half of 0.01 and takes half of 0.0025.
TEST(RopeOf, YarnBlendsAlongARampOfPairs) {
  formats::RopeSettings s;
  s.dims = 8;
  s.freq_base = 10000;
  s.scaling = formats::RopeScaling::kYarn;
  s.factor = 4;
  s.original_context = 6283;
  s.beta_fast = 99.9;  // so that no rounding of the logarithm reaches the next pair
  s.beta_slow = 1.001;
  s.attn_factor = 1.5;
  const kernels::Rope rope = rope_of(s);
  ASSERT_EQ(rope.inverse_frequency.size(), 4U);
  const float want[] = {1.0F, 0.1F, 0.00625F, 0.00025F};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(rope.inverse_frequency[i], want[i]) << i;
  EXPECT_FLOAT_EQ(rope.magnitude, static_cast<float>(1.5 * (1 + 0.1 * std::log(4.0))));
}

TEST(RopeOf, YarnKeepsFastPairsAndDividesSlowOnes) {
  formats::RopeSettings s;
  s.dims = 64;
  s.freq_base = 10000;
  s.scaling = formats::RopeScaling::kYarn;
  s.factor = 4;
  s.original_context = 4096;
  const kernels::Rope rope = rope_of(s);
  formats::RopeSettings plain = s;
  plain.scaling = formats::RopeScaling::kNone;
  const kernels::Rope unscaled = rope_of(plain);
  EXPECT_FLOAT_EQ(rope.inverse_frequency[0], unscaled.inverse_frequency[0]);
  EXPECT_FLOAT_EQ(rope.inverse_frequency[31], unscaled.inverse_frequency[31] / 4);
  // Monotonous between.
  double last = 1;
  for (std::size_t i = 0; i < 32; ++i) {
    const double ratio = static_cast<double>(rope.inverse_frequency[i] / unscaled.inverse_frequency[i]);
    EXPECT_LE(ratio, last + 1e-6);
    EXPECT_GE(ratio, 0.25 - 1e-6);
    last = ratio;
  }
  EXPECT_FLOAT_EQ(rope.magnitude, static_cast<float>(1 + 0.1 * std::log(4.0)));
}

}  // namespace
}  // namespace shoal::model
