// Weights mapped from a packed cache beside those that were packed: the same logits, whatever becomes of the
// cache's files.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "model/model_rig.h"

namespace shoal::model {
namespace {

namespace fs = std::filesystem;

class PackedCacheTest : public ::testing::Test {
 protected:
  PackedCacheTest() : tokens_(test::arbitrary_tokens(70, 1, 300)) {
    test::write_model(file(), DType::kQ8_0);
    plain_ = logits({});
  }

  fs::path file() const { return folder_ / "model.gguf"; }
  fs::path cache() const { return folder_ / "cache"; }
  std::vector<fs::path> cached() const {
    std::vector<fs::path> out;
    if (!fs::exists(cache())) return out;
    for (const auto& entry : fs::directory_iterator(cache())) out.push_back(entry.path());
    return out;
  }
  std::vector<float> logits(const fs::path& packed_cache, std::size_t* mapped = nullptr) const {
    test::Rig rig(file(), {.packed_cache = packed_cache});
    if (mapped != nullptr) *mapped = rig.model().mapped_weight_bytes();
    return rig.run(tokens_, 33);
  }
  void expect_served_from_cache() {
    std::size_t mapped = 0;
    EXPECT_EQ(logits(cache(), &mapped), plain_);
    EXPECT_GT(mapped, 0U);
    EXPECT_EQ(cached().size(), 1U);
  }

  test::ScratchFolder folder_;
  std::vector<TokenId> tokens_;
  std::vector<float> plain_;
};

TEST_F(PackedCacheTest, GivesTheSameLogitsWrittenAndRead) {
  EXPECT_TRUE(cached().empty());
  expect_served_from_cache();
  const auto written = fs::last_write_time(cached()[0]);
  fs::last_write_time(cached()[0], written - std::chrono::hours(100));
  expect_served_from_cache();
  EXPECT_GT(fs::last_write_time(cached()[0]), written - std::chrono::hours(1));  // use is seen
}

TEST_F(PackedCacheTest, DamagedFilesAreWrittenAnew) {
  expect_served_from_cache();
  const auto size = fs::file_size(cached()[0]);
  for (const std::uintmax_t length : {size / 2, std::uintmax_t{0}, std::uintmax_t{100}}) {
    fs::permissions(cached()[0], fs::perms::owner_write, fs::perm_options::add);
    fs::resize_file(cached()[0], length);
    expect_served_from_cache();
    EXPECT_EQ(fs::file_size(cached()[0]), size);
  }
}

TEST_F(PackedCacheTest, AnUnusableFolderIsNoObstacle) {
  std::ofstream(cache()) << "a file";
  std::size_t mapped = 1;
  EXPECT_EQ(logits(cache(), &mapped), plain_);
  EXPECT_EQ(mapped, 0U);
}

// Weights changed in place, other types and other cuts are other files.
TEST_F(PackedCacheTest, OtherWeightsAreOtherFiles) {
  expect_served_from_cache();
  test::write_model(file(), DType::kQ4_0);
  plain_ = logits({});
  std::size_t mapped = 0;
  EXPECT_EQ(logits(cache(), &mapped), plain_);
  EXPECT_GT(mapped, 0U);
  EXPECT_EQ(cached().size(), 2U);

  ThreadPool pool({.threads = 1, .spin = std::chrono::microseconds(0), .pin = false});
  LoadOptions options;
  options.context = {&pool, *kernels::chosen_isa(), kernels::Activations::kAuto, true};
  options.packed_cache = cache();
  options.layout = *Layout::make({.tp = 2});
  for (const std::int32_t rank : {0, 1, 0, 1}) {
    options.rank = rank;
    const auto shard = Model::load(file(), options);
    ASSERT_TRUE(shard.ok()) << shard.error().message();
    EXPECT_EQ((*shard)->mapped_weight_bytes(), (*shard)->weight_bytes());
  }
  EXPECT_EQ(cached().size(), 4U);
}

// The model's fingerprint looks at both ends of a tensor alone; who mends a file in between gets the new
// weights.
TEST_F(PackedCacheTest, AFileChangedInsideATensorIsPackedAnew) {
  expect_served_from_cache();
  const auto size = static_cast<std::streamoff>(fs::file_size(file()));
  std::string middle(4096, '\0');
  {
    std::fstream weights(file(), std::ios::in | std::ios::out | std::ios::binary);
    weights.seekg(size / 2).read(middle.data(), static_cast<std::streamsize>(middle.size()));
    for (char& byte : middle) byte = static_cast<char>(byte ^ 1);
    weights.seekp(size / 2).write(middle.data(), static_cast<std::streamsize>(middle.size()));
    ASSERT_TRUE(weights.good());
  }
  const std::vector<float> before = plain_;
  plain_ = logits({});
  ASSERT_NE(plain_, before);
  EXPECT_EQ(logits(cache()), plain_);
  EXPECT_EQ(cached().size(), 2U);
}

TEST_F(PackedCacheTest, ProcessesThatStartTogetherShareOneFile) {
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      std::size_t mapped = 0;
      const bool same = logits(cache(), &mapped) == plain_ && mapped > 0;
      ::_exit(same ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  expect_served_from_cache();
}

}  // namespace
}  // namespace shoal::model
