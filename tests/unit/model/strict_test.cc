// Strict mode at the level of the model: a row's logits depend on its sequence's tokens alone.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "model/model_rig.h"

namespace shoal::model::test {
namespace {

constexpr int kTokens = 150;

class StrictMode : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    file_ = folder_ / "model.gguf";
    write_model(file_, GetParam());
    rig_ = std::make_unique<Rig>(file_);
    ASSERT_FALSE(HasFailure());
    tokens_ = arbitrary_tokens(kTokens, 1, rig_->vocabulary());
    whole_ = rig_->run(tokens_, kTokens);
  }

  // Bits, not values: NaN would compare unequal and hide nothing.
  void expect_same_bits(const std::vector<float>& got, const char* what) {
    ASSERT_EQ(got.size(), whole_.size());
    for (int row = 0; row < kTokens; ++row) {
      const auto at = static_cast<std::size_t>(row * rig_->vocabulary());
      ASSERT_EQ(std::memcmp(&got[at], &whole_[at], static_cast<std::size_t>(rig_->vocabulary()) * 4), 0)
          << what << ": row " << row;
    }
  }

  ScratchFolder folder_;
  std::filesystem::path file_;
  std::unique_ptr<Rig> rig_;
  std::vector<TokenId> tokens_;
  std::vector<float> whole_;
};

TEST_P(StrictMode, ChunksDoNotChangeTheLogits) {
  for (const float logit : whole_) ASSERT_TRUE(std::isfinite(logit));
  for (const std::size_t chunk : {1U, 7U, 64U}) expect_same_bits(rig_->run(tokens_, chunk), "chunks");
}

TEST_P(StrictMode, PageOrderDoesNotChangeTheLogits) {
  expect_same_bits(rig_->run(tokens_, 64, true), "shuffled pages");
}

TEST_P(StrictMode, ThreadsDoNotChangeTheLogits) {
  for (const int threads : {1, 3}) {
    Rig other(file_, {.threads = threads});
    expect_same_bits(other.run(tokens_, kTokens), "threads");
    expect_same_bits(other.run(tokens_, 7), "threads and chunks");
  }
}

// Eight neighbours of other lengths at other positions, in prefill and in decode.
TEST_P(StrictMode, NeighboursDoNotChangeTheLogits) {
  constexpr int kNeighbours = 8;
  constexpr std::int32_t kPages = 5;
  rig_->make_pools(kPages * (kNeighbours + 1));
  std::vector<Rig::Table> tables;
  std::vector<std::vector<TokenId>> others;
  for (std::int32_t i = 0; i <= kNeighbours; ++i) {
    tables.push_back(rig_->table(i * kPages, kPages));
    others.push_back(arbitrary_tokens(kTokens, 50 + i, rig_->vocabulary()));
  }
  std::vector<float> got;
  std::vector<std::int32_t> done(kNeighbours, 0);
  for (std::int32_t begin = 0, step = 0; begin < kTokens; ++step) {
    const std::int32_t rows = std::min(step % 2 == 0 ? 23 : 1, kTokens - begin);
    std::vector<Rig::Piece> pieces;
    const auto place = static_cast<std::size_t>(step % kNeighbours);
    for (std::size_t i = 0; i < kNeighbours; ++i) {
      if (i == place) {
        pieces.push_back(
            {std::span(tokens_).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(rows)),
             begin, &tables[kNeighbours], true});
      }
      const std::int32_t count =
          std::min<std::int32_t>(1 + static_cast<std::int32_t>(i * 3), kTokens - done[i]);
      if (count <= 0) continue;
      pieces.push_back(
          {std::span(others[i]).subspan(static_cast<std::size_t>(done[i]), static_cast<std::size_t>(count)),
           done[i], &tables[i], false});
      done[i] += count;
    }
    const auto part = rig_->pass(pieces);
    got.insert(got.end(), part.begin(), part.end());
    begin += rows;
  }
  expect_same_bits(got, "neighbours");
}

INSTANTIATE_TEST_SUITE_P(Types, StrictMode,
                         ::testing::Values(DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0,
                                           DType::kQ4_1, DType::kQ5_1, DType::kQ4_K, DType::kQ6_K),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

}  // namespace
}  // namespace shoal::model::test
