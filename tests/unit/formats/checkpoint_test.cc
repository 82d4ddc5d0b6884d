// Folders and split files: what is read, and what is refused with a sentence.
#include "formats/checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <string>

#include "formats/fingerprint.h"
#include "formats/generation_config.h"
#include "formats/gguf_writer.h"
#include "formats/hf_folder.h"
#include "formats/tiny_model.h"

namespace shoal::formats {
namespace {

namespace fs = std::filesystem;
using test::HfFolder;
using test::ScratchFolder;
using test::says;

// "" where the folder opens. Every complaint is one line that names a path in the folder.
std::string error_of(const fs::path& path) {
  const auto opened = Checkpoint::open(path);
  if (opened) return "";
  const std::string& message = opened.error().message();
  EXPECT_TRUE(message.starts_with(path.string().substr(0, path.string().find_last_of('/')))) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  return message;
}

TEST(HfCheckpoint, NamesAreGgufsAndShapesHaveTheRowFirst) {
  const HfFolder hf;
  hf.write();
  const auto opened = Checkpoint::open(hf.path());
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  const ModelTensor* down = opened->tensor("blk.0.ffn_down.weight");
  ASSERT_NE(down, nullptr);
  EXPECT_EQ(down->row_length(), 12);
  EXPECT_EQ(down->rows(), 8);
  EXPECT_EQ(opened->file_of(*down), (hf.folder / "model.safetensors").string());
  EXPECT_EQ(opened->metadata().rope.style, RopeStyle::kHalfSplit);
  EXPECT_FALSE(opened->metadata().tied_embeddings);
  EXPECT_EQ(opened->tensors().size(), 12U);
}

TEST(HfCheckpoint, TiedModelsMayStoreEitherNameOrBoth) {
  for (const bool both : {true, false}) {
    HfFolder hf;
    hf.config["tie_word_embeddings"] = true;
    if (!both) {
      hf.tensors.erase("model.embed_tokens.weight");
      hf.metadata = {{"model.embed_tokens.weight", "lm_head.weight"}};
    }
    hf.write();
    const auto opened = Checkpoint::open(hf.path());
    ASSERT_TRUE(opened.ok()) << opened.error().message();
    EXPECT_NE(opened->tensor("token_embd.weight"), nullptr);
    EXPECT_EQ(opened->tensor("output.weight"), nullptr);
  }
}

TEST(HfCheckpoint, AliasesInTheMetadataNameTensorsThatShareMemory) {
  HfFolder hf;
  hf.tensors.erase("model.layers.0.mlp.up_proj.weight");
  hf.metadata = {{"model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.gate_proj.weight"},
                 {"nonsense", "model.layers.0.mlp.gate_proj.weight"}};
  hf.write();
  const auto opened = Checkpoint::open(hf.path());
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  EXPECT_EQ(opened->tensor("blk.0.ffn_up.weight")->bytes.data(),
            opened->tensor("blk.0.ffn_gate.weight")->bytes.data());
}

TEST(HfCheckpoint, ShardsMakeTheSameModel) {
  const HfFolder hf;
  hf.write_shards(5);
  const auto opened = Checkpoint::open(hf.path());
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  EXPECT_EQ(opened->tensors().size(), 12U);
  EXPECT_EQ(opened->table().files().size(), 2U);
}

TEST(HfCheckpoint, RefusesShardsThatAreMissingOrOverlap) {
  const HfFolder hf;
  auto index = hf.write_shards(5);
  index["weight_map"]["model.norm.weight"] = "a.safetensors";
  hf.write_index(index);
  EXPECT_TRUE(says(error_of(hf.path()), {"index.json", "model.norm.weight", "a.safetensors"}));

  hf.write_shards(5);
  fs::copy_file(hf.folder / "a.safetensors", hf.folder / "b.safetensors",
                fs::copy_options::overwrite_existing);
  EXPECT_TRUE(says(error_of(hf.path()), {"b.safetensors", "is also in a.safetensors"}));

  hf.write_shards(5);
  fs::remove(hf.folder / "b.safetensors");
  EXPECT_TRUE(says(error_of(hf.path()), {"b.safetensors", "No such file"}));

  fs::resize_file(hf.folder / "a.safetensors", 40);
  EXPECT_TRUE(says(error_of(hf.path()), {"a.safetensors", "header"}));
}

TEST(HfCheckpoint, RefusesIndexesThatLeadOutOfTheFolder) {
  const HfFolder hf;
  const test::ScratchFolder outside;
  const auto original = hf.write_shards(5);
  fs::copy_file(hf.folder / "b.safetensors", outside / "b.safetensors");
  for (const std::string& name :
       {std::string("../b.safetensors"), (outside / "b.safetensors").string(), std::string(".."),
        std::string(""), std::string("sub/b.safetensors"), std::string("a\0b", 3)}) {
    auto index = original;
    for (auto& [tensor, file] : index["weight_map"].items()) {
      if (file == "b.safetensors") file = name;
    }
    hf.write_index(index);
    EXPECT_TRUE(says(error_of(hf.path()), {"is not the name of a file in this folder"})) << name;
  }
  hf.write_index(original);
  fs::remove(hf.folder / "b.safetensors");
  fs::create_symlink(outside / "b.safetensors", hf.folder / "b.safetensors");
  EXPECT_TRUE(says(error_of(hf.path()), {"b.safetensors", "leads out of the model's folder"}));
}

TEST(HfCheckpoint, LinksInsideTheFolderAndIntoADownloadersBlobsAreFollowed) {
  const HfFolder hf;
  hf.write();
  fs::rename(hf.folder / "model.safetensors", hf.folder / "real");
  fs::create_symlink("real", hf.folder / "model.safetensors");
  EXPECT_EQ(error_of(hf.path()), "");

  const test::ScratchFolder cache;
  fs::create_directories(cache / "blobs");
  fs::create_directories(cache / "snapshots/1234");
  fs::copy_file(hf.folder / "real", cache / "blobs/abcd");
  fs::copy_file(hf.folder / "config.json", cache / "blobs/ef01");
  fs::create_symlink("../../blobs/abcd", cache / "snapshots/1234/model.safetensors");
  fs::create_symlink("../../blobs/ef01", cache / "snapshots/1234/config.json");
  EXPECT_EQ(error_of(cache / "snapshots/1234"), "");
}

TEST(HfCheckpoint, RefusesIndexesOfTheWrongKind) {
  const HfFolder hf;
  hf.write_shards(5);
  for (const char* text :
       {"", "[]", "{", "{}", R"({"weight_map":[]})", R"({"weight_map":{}})", R"({"weight_map":{"a":1}})",
        R"({"weight_map":{"a":"a.safetensors","a":"b.safetensors"}})"}) {
    test::write_file(hf.folder / "model.safetensors.index.json", text);
    EXPECT_TRUE(says(error_of(hf.path()), {"index.json"})) << text;
  }
}

TEST(HfCheckpoint, RefusesWhatIsMissingOrHasNoPlace) {
  HfFolder hf;
  hf.write_config();
  EXPECT_TRUE(says(error_of(hf.path()), {"neither model.safetensors nor"}));
  test::write_file(hf.folder / "pytorch_model.bin", "x");
  EXPECT_TRUE(says(error_of(hf.path()), {"pytorch_model.bin", "safetensors"}));

  hf.tensors.erase("model.layers.0.self_attn.k_proj.weight");
  hf.write();
  EXPECT_TRUE(says(error_of(hf.path()), {"'model.layers.0.self_attn.k_proj.weight' is missing"}));
  hf.tensors["model.layers.0.self_attn.k_proj.weight"] = {8, 8};
  hf.write();
  EXPECT_TRUE(says(error_of(hf.path()), {"k_proj.weight", "[8, 8]", "[8, 4]"}));
  hf.tensors["model.layers.0.self_attn.k_proj.weight"] = {4, 8};
  hf.tensors["model.layers.1.mlp.up_proj.weight"] = {12, 8};
  hf.write();
  EXPECT_TRUE(says(error_of(hf.path()), {"model.layers.1.mlp.up_proj.weight", "no place"}));
  hf.tensors.erase("model.layers.1.mlp.up_proj.weight");
  hf.tensors["model.layers.0.block_sparse_moe.gate.weight"] = {4, 8};
  hf.write();
  EXPECT_TRUE(says(error_of(hf.path()), {"block_sparse_moe.gate.weight", "no place"}));
}

TEST(HfCheckpoint, RefusesTypesThatCannotBeServed) {
  const HfFolder hf;
  hf.write();
  std::string file = test::safetensors(hf.tensors);
  // Same width, other meaning: the header keeps its length.
  const auto at = file.find("\"F32\"", file.find("q_proj") - 120);
  file.replace(at, 5, "\"I32\"");
  test::write_file(hf.folder / "model.safetensors", file);
  EXPECT_TRUE(says(error_of(hf.path()), {"I32", "cannot be served"}));
}

TEST(HfCheckpoint, RefusesFoldersThatAreNone) {
  const test::ScratchFolder empty;
  const auto opened = Checkpoint::open(empty / "");
  ASSERT_FALSE(opened.ok());
  EXPECT_TRUE(says(opened.error().message(), {"has no config.json"}));
  test::write_file(empty / "model.gguf", "GGUF");
  EXPECT_TRUE(says(Checkpoint::open(empty / "").error().message(), {"give the file, such as model.gguf"}));
  EXPECT_FALSE(Checkpoint::open(empty / "nothing").ok());
}

TEST(HfCheckpoint, FingerprintsTellWeightsConfigurationsAndShardsApart) {
  HfFolder hf;
  hf.write();
  const auto print = [&] { return model_fingerprint(*Checkpoint::open(hf.path()), "file", "v1"); };
  const Fingerprint first = print();
  EXPECT_EQ(print(), first);
  hf.config["rope_theta"] = 20000.0;
  hf.write_config();
  EXPECT_NE(print(), first);
}

TEST(GenerationDefaults, AreReadWhereTheFolderHasThem) {
  const HfFolder hf;
  hf.write();
  EXPECT_EQ(read_generation_defaults(hf.path())->temperature, std::nullopt);
  test::write_file(hf.folder / "generation_config.json",
                   R"({"temperature":0.6,"top_p":0.95,"top_k":20,"repetition_penalty":1.05,"do_sample":true,
                       "eos_token_id":[1,2],"unknown":{}})");
  const auto read = read_generation_defaults(hf.path());
  ASSERT_TRUE(read.ok()) << read.error().message();
  EXPECT_EQ(read->temperature, 0.6);
  EXPECT_EQ(read->top_p, 0.95);
  EXPECT_EQ(read->top_k, 20);
  EXPECT_EQ(read->repetition_penalty, 1.05);
  EXPECT_EQ(read->eos_token_ids, (std::vector<std::int32_t>{1, 2}));
  test::write_file(hf.folder / "generation_config.json", R"({"eos_token_id":7})");
  EXPECT_EQ(read_generation_defaults(hf.path())->eos_token_ids, (std::vector<std::int32_t>{7}));
  for (const char* text :
       {R"({"temperature":"hot"})", R"({"top_p":2})", R"({"top_k":-2})", R"({"eos_token_id":[-1]})", "[]"}) {
    test::write_file(hf.folder / "generation_config.json", text);
    const auto refused = read_generation_defaults(hf.path());
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_TRUE(says(refused.error().message(), {"generation_config.json"}));
  }
}

TEST(GenerationDefaults, AreReadFromTheKeysOfAGgufFile) {
  const ScratchFolder folder;
  const auto read = [&](const std::function<void(GgufWriter&)>& add) {
    GgufWriter writer(folder / "m.gguf");
    writer.add_string("general.architecture", "llama");
    add(writer);
    EXPECT_TRUE(writer.begin().ok());
    EXPECT_TRUE(writer.finish().ok());
    return read_generation_defaults(folder / "m.gguf");
  };
  EXPECT_EQ(read([](GgufWriter&) {})->temperature, std::nullopt);
  const auto all = read([](GgufWriter& writer) {
    writer.add_float32("general.sampling.temp", 0.5F);
    writer.add_float32("general.sampling.top_p", 0.25F);
    writer.add_float32("general.sampling.min_p", 0.125F);
    writer.add_int32("general.sampling.top_k", 20);
    writer.add_float32("general.sampling.penalty_repeat", 1.5F);
  });
  ASSERT_TRUE(all.ok()) << all.error().message();
  EXPECT_EQ(all->temperature, 0.5);
  EXPECT_EQ(all->top_p, 0.25);
  EXPECT_EQ(all->min_p, 0.125);
  EXPECT_EQ(all->top_k, 20);
  EXPECT_EQ(all->repetition_penalty, std::nullopt) << "there it means the last tokens only";
  EXPECT_EQ(read([](GgufWriter& writer) { writer.add_int32("general.sampling.top_k", -1); })->top_k, 0);
  const std::vector<std::function<void(GgufWriter&)>> wrong = {
      [](GgufWriter& writer) { writer.add_float32("general.sampling.temp", std::nanf("")); },
      [](GgufWriter& writer) { writer.add_float32("general.sampling.top_p", 2); },
      [](GgufWriter& writer) { writer.add_string("general.sampling.min_p", "none"); }};
  for (const auto& add : wrong) {
    const auto refused = read(add);
    ASSERT_FALSE(refused.ok());
    EXPECT_TRUE(says(refused.error().message(), {"general.sampling."}));
  }
  EXPECT_TRUE(read_generation_defaults(folder / "none.gguf").ok());
}

// A model of two files: the first with all keys, tensors dealt one by one.
class SplitGguf : public ::testing::Test {
 protected:
  static constexpr const char* kFirst = "m-00001-of-00002.gguf";
  static constexpr const char* kSecond = "m-00002-of-00002.gguf";

  void write(std::uint32_t second_number = 1, std::uint32_t second_count = 2, std::uint32_t promised = 0) {
    const test::TinyModel tiny;
    if (promised == 0) promised = static_cast<std::uint32_t>(tiny.tensors.size());
    for (const bool first : {true, false}) {
      GgufWriter writer(folder_ / (first ? kFirst : kSecond));
      writer.add_uint32("split.no", first ? 0 : second_number);
      writer.add_uint32("split.count", first ? 2 : second_count);
      writer.add_uint32("split.tensors.count", promised);
      if (first) {
        writer.add_string("general.architecture", "llama");
        for (const auto& [key, value] : tiny.numbers) writer.add_uint32("llama." + key, value);
        for (const auto& [key, value] : tiny.floats) writer.add_float32("llama." + key, value);
      }
      std::size_t total = 0;
      bool turn = true;
      for (const auto& [name, tensor] : tiny.tensors) {
        if (turn == first) {
          writer.add_tensor(name, tensor.type, tensor.dims);
          std::size_t bytes = 4;
          for (const std::int64_t d : tensor.dims) bytes *= static_cast<std::size_t>(d);
          total += bytes;
        }
        turn = !turn;
      }
      ASSERT_TRUE(writer.begin().ok());
      ASSERT_TRUE(writer.write(std::vector<std::byte>(total)).ok());
      ASSERT_TRUE(writer.finish().ok());
    }
  }

  test::ScratchFolder folder_;
};

TEST_F(SplitGguf, FilesTogetherAreTheModel) {
  write();
  const auto opened = Checkpoint::open(folder_ / kFirst);
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  EXPECT_EQ(opened->tensors().size(), test::TinyModel().tensors.size());
  EXPECT_EQ(opened->metadata().vocab, 50);
}

TEST_F(SplitGguf, RefusesSetsThatDoNotHoldTogether) {
  write();
  EXPECT_TRUE(says(Checkpoint::open(folder_ / kSecond).error().message(), {kSecond, "file 2", "first"}));
  fs::copy_file(folder_ / kFirst, folder_ / "other.gguf");
  EXPECT_TRUE(says(error_of(folder_ / "other.gguf"), {"other.gguf", "-00001-of-00002.gguf"}));
  fs::remove(folder_ / kSecond);
  EXPECT_TRUE(says(error_of(folder_ / kFirst), {kSecond, "cannot open"}));
  fs::copy_file(folder_ / kFirst, folder_ / kSecond);
  EXPECT_TRUE(says(error_of(folder_ / kFirst), {kSecond, "file 1 of 2", "2 of 2 is expected"}));
  write(1, 3);
  EXPECT_TRUE(says(error_of(folder_ / kFirst), {kSecond, "file 2 of 3"}));
  write(1, 2, 99);
  EXPECT_TRUE(says(error_of(folder_ / kFirst), {kFirst, "promises 99 tensors"}));
}

}  // namespace
}  // namespace shoal::formats
