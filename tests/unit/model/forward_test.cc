#include "model/forward.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "formats/tiny_model.h"
#include "model/model_rig.h"

namespace shoal::model::test {
namespace {

double largest_difference(std::span<const float> a, std::span<const float> b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(difference <= worst)) worst = difference;  // NaN wins
  }
  return worst;
}

class ForwardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    file_ = folder_ / "model.gguf";
    write_model(file_, DType::kF32);
  }

  ScratchFolder folder_;
  std::filesystem::path file_;
};

TEST_F(ForwardTest, LogitsOfChosenRowsAreThoseOfAllRows) {
  Rig rig(file_);
  const auto tokens = arbitrary_tokens(70, 1, rig.vocabulary());
  const auto all = rig.run(tokens, 70);
  rig.make_pools(3);
  const Rig::Table table = rig.table(0, 3);
  // Three pieces of one sequence cannot be in one pass; two sequences can: rows of one of them only.
  const auto first = rig.pass({{std::span(tokens).first(40), 0, &table, false}});
  EXPECT_TRUE(first.empty());
  const auto rest = rig.pass({{std::span(tokens).subspan(40), 40, &table, true}});
  ASSERT_EQ(rest.size(), 30U * static_cast<std::size_t>(rig.vocabulary()));
  EXPECT_EQ(largest_difference(rest, std::span(all).subspan(40 * static_cast<std::size_t>(rig.vocabulary()))),
            0);
}

TEST_F(ForwardTest, HookSeesEveryLayerOnceInOrder) {
  Rig rig(file_);
  const auto tokens = arbitrary_tokens(5, 1, rig.vocabulary());
  rig.make_pools(1);
  const Rig::Table table = rig.table(0, 1);
  for (const bool logits : {true, false}) {
    std::vector<std::int32_t> layers;
    rig.pass({{tokens, 0, &table, logits}}, [&](std::int32_t layer) { layers.push_back(layer); });
    EXPECT_EQ(layers, (std::vector<std::int32_t>{0, 1}));
  }
}

TEST_F(ForwardTest, AnEmptyBatchDoesNothing) {
  Rig rig(file_);
  rig.make_pools(1);
  EXPECT_TRUE(rig.pass({}).empty());
}

TEST_F(ForwardTest, DefaultModeStaysCloseToStrictF32) {
  Rig exact(file_, {.strict = true, .activations = kernels::Activations::kF32, .kv = KvDType::kF32});
  Rig fast(file_, {.strict = false, .kv = KvDType::kBf16});
  const auto tokens = arbitrary_tokens(100, 4, exact.vocabulary());
  const auto a = exact.run(tokens, 100);
  const auto b = fast.run(tokens, 33);
  double largest = 0;
  for (const float v : a) largest = std::max(largest, std::abs(static_cast<double>(v)));
  EXPECT_LT(largest_difference(a, b) / largest, 0.02);
}

// What the window hides may be given back: its slots are never read.
TEST_F(ForwardTest, PagesBehindAWindowAreNotRead) {
  const auto windowed = folder_ / "windowed.gguf";
  add_window(file_, windowed, 40, 2);
  Rig rig(windowed);
  ASSERT_EQ(rig.model().kv_groups().size(), 2U);
  ASSERT_EQ(rig.model().kv_groups()[1].window, 40);
  const auto tokens = arbitrary_tokens(200, 9, rig.vocabulary());
  const auto all = rig.run(tokens, 200);

  constexpr std::int32_t kPages = 7;
  rig.make_pools(kPages);
  Rig::Table table = rig.table(0, kPages);
  std::vector<float> got;
  for (std::int32_t begin = 0; begin < 200; begin += 25) {
    for (std::int32_t page = 0; (page + 1) * kPageTokens <= begin - 39; ++page) {
      table[1][static_cast<std::size_t>(page)] = kernels::kNoSlot;
    }
    const auto part =
        rig.pass({{std::span(tokens).subspan(static_cast<std::size_t>(begin), 25), begin, &table, true}});
    got.insert(got.end(), part.begin(), part.end());
  }
  EXPECT_EQ(largest_difference(got, all), 0);
}

TEST_F(ForwardTest, AWindowChangesWhatLiesBeyondItOnly) {
  const auto windowed = folder_ / "windowed.gguf";
  add_window(file_, windowed, 40, 2);
  Rig full(file_);
  Rig window(windowed);
  const auto tokens = arbitrary_tokens(100, 9, full.vocabulary());
  const auto a = full.run(tokens, 100);
  const auto b = window.run(tokens, 100);
  const auto inside = static_cast<std::size_t>(40 * full.vocabulary());
  EXPECT_EQ(largest_difference(std::span(a).first(inside), std::span(b).first(inside)), 0);
  EXPECT_GT(largest_difference(std::span(a).subspan(inside), std::span(b).subspan(inside)), 0);
}

TEST_F(ForwardTest, DescriptionAndReportsSpeakOfTheFile) {
  Rig rig(file_);
  const ModelDescription& d = rig.model().description();
  EXPECT_EQ(d.architecture, "llama");
  EXPECT_EQ(d.hidden, 96);
  EXPECT_EQ(d.layers.size(), 2U);
  EXPECT_EQ(d.fingerprint.size(), 32U);
  EXPECT_GT(d.parameters, 0U);
  EXPECT_GT(rig.model().weight_bytes(), d.parameters * 4 / 2);
  EXPECT_FALSE(rig.model().kernel_report().empty());
  const KvLayout layout = rig.model().pool_layout(KvGroupId(0), KvDType::kBf16);
  EXPECT_EQ(layout.layers, 2);
  EXPECT_EQ(layout.kv_heads, 2);
  EXPECT_EQ(layout.head_dim, 16);
}

TEST_F(ForwardTest, FingerprintsTellModelsApart) {
  const auto other = folder_ / "other.gguf";
  write_model(other, DType::kQ8_0);
  EXPECT_NE(Rig(file_).model().description().fingerprint, Rig(other).model().description().fingerprint);
  EXPECT_EQ(Rig(file_).model().description().fingerprint, Rig(file_).model().description().fingerprint);
}

class LoadTest : public ::testing::Test {
 protected:
  LoadTest() : pool_({.threads = 1, .spin = std::chrono::microseconds(0), .pin = false}) {
    options_.context.pool = &pool_;
    options_.context.isa = *kernels::chosen_isa();
  }

  std::string refusal(const std::filesystem::path& file) {
    const auto loaded = Model::load(file, options_);
    EXPECT_FALSE(loaded.ok());
    return loaded.ok() ? "" : loaded.error().message();
  }

  ScratchFolder folder_;
  ThreadPool pool_;
  LoadOptions options_;
};

TEST_F(LoadTest, AMissingFileIsNamed) {
  EXPECT_NE(refusal(folder_ / "none.gguf").find("none.gguf"), std::string::npos);
}

TEST_F(LoadTest, AMissingTensorIsNamedWithItsFile) {
  formats::test::TinyModel tiny;
  tiny.tensors.erase("blk.1.ffn_down.weight");
  ASSERT_TRUE(tiny.write(folder_ / "holed.gguf").ok());
  const std::string reason = refusal(folder_ / "holed.gguf");
  EXPECT_NE(reason.find("holed.gguf"), std::string::npos);
  EXPECT_NE(reason.find("blk.1.ffn_down.weight"), std::string::npos);
}

TEST_F(LoadTest, AWrongShapeIsNamedWithBoth) {
  formats::test::TinyModel tiny;
  tiny.tensors["blk.0.attn_q.weight"].dims = {64, 32};
  ASSERT_TRUE(tiny.write(folder_ / "bent.gguf").ok());
  EXPECT_NE(refusal(folder_ / "bent.gguf").find("blk.0.attn_q.weight"), std::string::npos);
}

TEST_F(LoadTest, ATypeWithoutAKernelIsNamed) {
  formats::test::TinyModel tiny;
  tiny.tensors["blk.0.attn_q.weight"].type = DType::kI8;
  ASSERT_TRUE(tiny.write(folder_ / "odd.gguf").ok());
  EXPECT_NE(refusal(folder_ / "odd.gguf").find("i8"), std::string::npos);
}

TEST_F(LoadTest, LayoutsThatCannotBeServedAreRefused) {
  write_model(folder_ / "model.gguf", DType::kF32);
  options_.layout = *Layout::make({.dp = 2});
  EXPECT_EQ(refusal(folder_ / "model.gguf").find("dp 2 is not served"), 0U);
}

TEST_F(LoadTest, ProgressEndsAtTheWhole) {
  write_model(folder_ / "model.gguf", DType::kF32);
  std::uint64_t last = 0;
  std::uint64_t all = 1;
  options_.progress = [&](std::uint64_t done, std::uint64_t total) {
    EXPECT_GE(done, last);
    EXPECT_LE(done, total);
    last = done;
    all = total;
  };
  ASSERT_TRUE(Model::load(folder_ / "model.gguf", options_).ok());
  EXPECT_EQ(last, all);
}

}  // namespace
}  // namespace shoal::model::test
