#include "formats/synth.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <set>

#include "formats/fingerprint.h"
#include "formats/gguf_builder.h"
#include "formats/model_summary.h"
#include "formats/synth_tokenizer.h"
#include "formats/synth_weights.h"
#include "tensor/half.h"

namespace shoal::formats {
namespace {

using test::says;
using test::ScratchFolder;

constexpr DType kTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ4_0,
                            DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,
                            DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

SynthShape micro() { return *find_synth_shape("llama-micro"); }

std::string slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class SynthTest : public ::testing::Test {
 protected:
  Expected<GgufFile> make(const SynthShape& shape, DType type, std::uint64_t seed = 1,
                          std::string_view name = "m.gguf") {
    SHOAL_TRY(write_synth(shape, {.type = type, .seed = seed, .progress = {}}, folder_ / name, pool_));
    return GgufFile::open(folder_ / name);
  }

  ScratchFolder folder_;
  ThreadPool pool_{{.threads = 2, .spin = std::chrono::microseconds(0), .pin = false}};
};

TEST_F(SynthTest, EveryTypeMakesAModelThatPassesEveryCheck) {
  for (const DType type : kTypes) {
    const auto file = make(micro(), type);
    ASSERT_TRUE(file) << file.error().message();
    const auto model = read_model_metadata(*file);
    ASSERT_TRUE(model) << model.error().message();
    const Status sound = check_model_tensors(*file, *model);
    EXPECT_TRUE(sound.ok()) << sound.message();
    EXPECT_EQ(file->tensor("blk.0.ffn_up.weight")->type, type);
    EXPECT_EQ(file->tensor("output_norm.weight")->type, DType::kF32);
  }
}

TEST_F(SynthTest, WhatIsReadIsWhatTheShapeSays) {
  for (const SynthShape& shape : synth_shapes()) {
    // Two layers and a small vocabulary: the large shapes stay large in everything that metadata says.
    SynthShape small = shape;
    small.layers = 1;
    small.vocab = kSynthSmallestVocab;
    small.ffn_dim = 256;
    const auto file = make(small, DType::kQ4_0);
    ASSERT_TRUE(file) << shape.name << ": " << file.error().message();
    const auto read = read_model_metadata(*file);
    ASSERT_TRUE(read) << shape.name << ": " << read.error().message();
    EXPECT_TRUE(check_model_tensors(*file, *read).ok()) << shape.name;
    const ModelMetadata made = synth_metadata(small);
    EXPECT_EQ(read->architecture, made.architecture);
    EXPECT_EQ(read->name, made.name);
    EXPECT_EQ(read->dim, made.dim);
    EXPECT_EQ(read->heads, made.heads);
    EXPECT_EQ(read->kv_heads, made.kv_heads);
    EXPECT_EQ(read->head_dim, made.head_dim);
    EXPECT_EQ(read->vocab, made.vocab);
    EXPECT_EQ(read->context, made.context);
    EXPECT_EQ(read->rms_eps, made.rms_eps);
    EXPECT_EQ(read->rope.style, made.rope.style);
    EXPECT_EQ(read->rope.freq_base, made.rope.freq_base);
    EXPECT_EQ(read->rope.scaling, made.rope.scaling);
    EXPECT_EQ(read->rope.factors, made.rope.factors);
    EXPECT_EQ(read->tied_embeddings, made.tied_embeddings);
    EXPECT_EQ(read->attention_bias, made.attention_bias);
    EXPECT_EQ(read->qk_norm, made.qk_norm);
  }
}

TEST_F(SynthTest, RealShapesHaveTheirPublishedSizes) {
  const auto parameters = [](std::string_view name) {
    std::int64_t sum = 0;
    for (const TensorNeed& need : needed_tensors(synth_metadata(*find_synth_shape(name)))) {
      std::int64_t product = 1;
      for (const std::int64_t d : need.dims) product *= d;
      sum += product;
    }
    return sum;
  };
  EXPECT_EQ(parameters("llama-1b"), 1235814400);
  EXPECT_EQ(parameters("llama-8b"), 8030261248);
  EXPECT_EQ(parameters("smollm2-135m"), 134515008);
  EXPECT_EQ(parameters("qwen3-0.6b"), 596049920);
  EXPECT_EQ(parameters("qwen3-4b"), 4022468096);
  EXPECT_EQ(parameters("qwen2-0.5b"), 494032768);
}

TEST_F(SynthTest, SameSeedSameBytesWhateverTheThreads) {
  ASSERT_TRUE(make(micro(), DType::kQ6_K, 7, "a.gguf"));
  ThreadPool alone({.threads = 1, .pin = false});
  ASSERT_TRUE(
      write_synth(micro(), {.type = DType::kQ6_K, .seed = 7, .progress = {}}, folder_ / "b.gguf", alone)
          .ok());
  ASSERT_TRUE(make(micro(), DType::kQ6_K, 8, "c.gguf"));
  const std::string a = slurp(folder_ / "a.gguf");
  EXPECT_EQ(a, slurp(folder_ / "b.gguf"));
  EXPECT_NE(a, slurp(folder_ / "c.gguf"));
}

TEST_F(SynthTest, RowsThatAreNoKBlocksTakeTheSubstitute) {
  EXPECT_EQ(synth_type(DType::kQ4_K, 512), DType::kQ4_K);
  EXPECT_EQ(synth_type(DType::kQ4_K, 576), DType::kQ5_0);
  EXPECT_EQ(synth_type(DType::kQ5_K, 576), DType::kQ5_1);
  EXPECT_EQ(synth_type(DType::kQ6_K, 576), DType::kQ8_0);
  EXPECT_EQ(synth_type(DType::kQ4_0, 172), DType::kF16);
  EXPECT_EQ(synth_type(DType::kF32, 5), DType::kF32);
}

TEST_F(SynthTest, UnknownShapesAndTypesAreNamed) {
  EXPECT_TRUE(says(find_synth_shape("llama-2t").error().message(), {"'llama-2t'", "llama-1b", "qwen3-0.6b"}));
  EXPECT_TRUE(says(make(micro(), DType::kIQ4_NL).error().message(), {"iq4_nl"}));
}

TEST_F(SynthTest, TokenizerCoversEveryByteAndFillsTheVocabulary) {
  const auto file = make(micro(), DType::kQ8_0);
  ASSERT_TRUE(file);
  const auto tokens = file->get_strings("tokenizer.ggml.tokens");
  const auto types = file->get_int32s("tokenizer.ggml.token_type");
  const auto merges = file->get_strings("tokenizer.ggml.merges");
  ASSERT_TRUE(tokens && types && merges);
  ASSERT_EQ(tokens->size(), 512U);
  ASSERT_EQ(types->size(), 512U);
  const std::set<std::string_view> all(tokens->begin(), tokens->end());
  EXPECT_EQ(all.size(), tokens->size()) << "a token stands twice";
  EXPECT_EQ((*tokens)['A'], "A");
  EXPECT_EQ((*tokens)[' '], "\u0120");
  EXPECT_EQ((*tokens)[kSynthTurnEnd], "<|im_end|>");
  EXPECT_EQ((*types)[kSynthTurnEnd], 3);
  EXPECT_EQ((*tokens)[511], "<filler_223>");
  for (const std::string_view merge : *merges) {
    const std::size_t space = merge.find(' ');
    ASSERT_NE(space, std::string_view::npos);
    EXPECT_TRUE(all.contains(merge.substr(0, space))) << merge;
    EXPECT_TRUE(all.contains(merge.substr(space + 1))) << merge;
    const std::string product = std::string(merge.substr(0, space)) + std::string(merge.substr(space + 1));
    EXPECT_TRUE(all.contains(product)) << merge;
  }
}

TEST_F(SynthTest, FloatsAreNormalWithTheirDeviation) {
  std::vector<float> values(100000);
  fill_random(DType::kF32, 3, 0, 0.5F, std::as_writable_bytes(std::span(values)));
  double sum = 0;
  double squares = 0;
  for (const float v : values) {
    ASSERT_TRUE(std::isfinite(v));
    sum += v;
    squares += static_cast<double>(v) * v;
  }
  EXPECT_NEAR(sum / 1e5, 0.0, 0.01);
  EXPECT_NEAR(std::sqrt(squares / 1e5), 0.5, 0.01);
}

TEST_F(SynthTest, ScalesAreFiniteAndEightBitWeightsNeverMinus128) {
  constexpr std::int64_t kBlocks = 2000;
  std::vector<std::byte> q8(static_cast<std::size_t>(kBlocks * block_bytes(DType::kQ8_0)));
  fill_random(DType::kQ8_0, 5, 0, 0.02F, q8);
  double squares = 0;
  for (std::int64_t b = 0; b < kBlocks; ++b) {
    const std::byte* block = q8.data() + b * block_bytes(DType::kQ8_0);
    F16 scale;
    std::memcpy(&scale, block, 2);
    const float d = f16_to_f32(scale);
    ASSERT_TRUE(std::isfinite(d) && d > 0.0F);
    for (int i = 0; i < 32; ++i) {
      const auto q = static_cast<std::int8_t>(block[2 + i]);
      ASSERT_NE(q, -128);
      squares += static_cast<double>(d * q) * (d * q);
    }
  }
  EXPECT_NEAR(std::sqrt(squares / (kBlocks * 32)), 0.02, 0.0006);
}

TEST_F(SynthTest, SummaryAddsUp) {
  const auto file = make(micro(), DType::kQ4_0);
  ASSERT_TRUE(file);
  const auto model = read_model_metadata(*file);
  ASSERT_TRUE(model);
  const ModelSummary summary = summarise(*file, *model);
  EXPECT_EQ(summary.part(ModelPart::kEmbedding).parameters, 256 * 512);
  EXPECT_EQ(summary.part(ModelPart::kAttention).parameters, 2 * (2 * 256 * 256 + 2 * 256 * 128));
  EXPECT_EQ(summary.part(ModelPart::kFeedForward).parameters, 2 * 3 * 256 * 512);
  EXPECT_EQ(summary.part(ModelPart::kNorm).parameters, 5 * 256);
  EXPECT_EQ(summary.part(ModelPart::kNorm).bytes, 5 * 256 * 4);
  Weight parts;
  for (const Weight& w : summary.parts) {
    parts.parameters += w.parameters;
    parts.bytes += w.bytes;
  }
  EXPECT_EQ(parts.parameters, summary.total.parameters);
  EXPECT_EQ(parts.bytes, summary.total.bytes);
  EXPECT_EQ(summary.by_type.at("q4_0").parameters + summary.by_type.at("f32").parameters,
            summary.total.parameters);
}

TEST_F(SynthTest, FingerprintSeesMetadataWeightsAndWhatTheCallerAdds) {
  const auto one = make(micro(), DType::kQ8_0, 1, "1.gguf");
  const auto again = make(micro(), DType::kQ8_0, 1, "2.gguf");
  const auto seed = make(micro(), DType::kQ8_0, 2, "3.gguf");
  SynthShape longer = micro();
  longer.context *= 2;
  const auto metadata = make(longer, DType::kQ8_0, 1, "4.gguf");
  ASSERT_TRUE(one && again && seed && metadata);
  const Fingerprint base = model_fingerprint(*one, "q8_0", "v1/bf16/h2x64");
  EXPECT_EQ(base, model_fingerprint(*again, "q8_0", "v1/bf16/h2x64"));
  EXPECT_EQ(base.hex().size(), 32U);
  EXPECT_NE(base, model_fingerprint(*seed, "q8_0", "v1/bf16/h2x64"));
  EXPECT_NE(base, model_fingerprint(*metadata, "q8_0", "v1/bf16/h2x64"));
  EXPECT_NE(base, model_fingerprint(*one, "bf16", "v1/bf16/h2x64"));
  EXPECT_NE(base, model_fingerprint(*one, "q8_0", "v1/f32/h2x64"));
  EXPECT_NE(base, model_fingerprint(*one, "q8_0v1", "/bf16/h2x64")) << "pieces must not run together";
}

}  // namespace
}  // namespace shoal::formats
