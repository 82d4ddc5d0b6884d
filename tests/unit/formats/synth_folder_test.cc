// Synthetic models as Hugging Face folders.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "formats/checkpoint.h"
#include "formats/gguf_builder.h"
#include "formats/synth.h"

namespace shoal::formats {
namespace {

namespace fs = std::filesystem;
using test::says;

ThreadPool::Options two_threads() {
  return {.threads = 2, .spin = std::chrono::microseconds(0), .pin = false};
}

Status write(const char* shape, DType type, const fs::path& folder,
             std::uint64_t shard_bytes = 2'000'000'000) {
  ThreadPool pool(two_threads());
  return write_synth_folder(*find_synth_shape(shape), {.type = type, .seed = 1, .progress = {}}, folder, pool,
                            shard_bytes);
}

TEST(SynthFolder, ReadsBackAsItsShape) {
  const test::ScratchFolder scratch;
  ASSERT_TRUE(write("llama-micro", DType::kBF16, scratch / "model/").ok());
  const auto opened = Checkpoint::open(scratch / "model");
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  const ModelMetadata want = synth_metadata(*find_synth_shape("llama-micro"));
  const ModelMetadata& got = opened->metadata();
  EXPECT_EQ(got.layers, want.layers);
  EXPECT_EQ(got.dim, want.dim);
  EXPECT_EQ(got.head_dim, want.head_dim);
  EXPECT_EQ(got.vocab, want.vocab);
  EXPECT_EQ(got.tied_embeddings, want.tied_embeddings);
  for (const char* file : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"})
    EXPECT_TRUE(fs::exists(scratch / "model" / file)) << file;
  EXPECT_FALSE(fs::exists(scratch / "model.part"));
}

TEST(SynthFolder, ShardsHoldTheSameBytes) {
  const test::ScratchFolder scratch;
  ASSERT_TRUE(write("llama-micro", DType::kF32, scratch / "whole").ok());
  ASSERT_TRUE(write("llama-micro", DType::kF32, scratch / "cut", 1'000'000).ok());
  const auto whole = Checkpoint::open(scratch / "whole");
  const auto cut = Checkpoint::open(scratch / "cut");
  ASSERT_TRUE(whole.ok() && cut.ok()) << cut.status().message();
  EXPECT_GT(cut->table().files().size(), 3U);
  for (const ModelTensor& tensor : whole->tensors()) {
    const ModelTensor* other = cut->tensor(tensor.name);
    ASSERT_NE(other, nullptr) << tensor.name;
    EXPECT_TRUE(
        std::equal(tensor.bytes.begin(), tensor.bytes.end(), other->bytes.begin(), other->bytes.end()))
        << tensor.name;
  }
}

TEST(SynthFolder, RefusesQuantisedTypesAndFoldersThatHoldSomething) {
  const test::ScratchFolder scratch;
  const Status quantised = write("llama-micro", DType::kQ8_0, scratch / "model");
  EXPECT_EQ(quantised.code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(says(quantised.message(), {"q8_0", "GGUF"}));
  fs::create_directory(scratch / "mine");
  std::ofstream(scratch / "mine/letter") << "dear";
  EXPECT_TRUE(
      says(write("llama-micro", DType::kBF16, scratch / "mine").message(), {"mine", "not an empty folder"}));
  EXPECT_TRUE(fs::exists(scratch / "mine/letter"));
}

}  // namespace
}  // namespace shoal::formats
