#include "parallel/weight_stream.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "kernels/pack.h"

namespace shoal::parallel {
namespace {

using kernels::PackedMatrix;
using kernels::WeightSource;

// Matrices packed from pieces beside the same ones packed from memory: the same bytes.
class WeightStreamTest : public ::testing::Test {
 protected:
  WeightStreamTest()
      : path_(testing::TempDir() + "weight_stream_" + std::to_string(::getpid())),
        pool_({.threads = 3, .spin = std::chrono::microseconds(0), .pin = false}) {
    context_.pool = &pool_;
    context_.isa = *kernels::chosen_isa();
    std::vector<std::uint16_t> halves(kBytes / 2);
    for (std::size_t i = 0; i < halves.size(); ++i)
      halves[i] =
          static_cast<std::uint16_t>(0x3c00 + i * 2654435761U % 1021);  // finite in f16, bf16 and as blocks
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(halves.data()), static_cast<std::streamsize>(kBytes));
    auto opened = MappedFile::open(path_);
    if (opened.ok()) file_.emplace(std::move(*opened));
  }
  ~WeightStreamTest() override { ::unlink(path_.c_str()); }

  WeightSource source(std::size_t at, DType type, std::int64_t rows, std::int64_t columns,
                      std::optional<DType> as = {}, std::int64_t of_columns = 0) const {
    WeightSource out;
    out.type = type;
    out.data = file_->bytes().data() + at;
    out.rows = rows;
    out.columns = columns;
    out.stride = row_bytes(type, of_columns == 0 ? columns : of_columns);
    out.pack_as = as;
    return out;
  }

  void expect_same(const std::vector<std::vector<WeightSource>>& matrices, const std::vector<bool>& fed) {
    for (const bool around_cache : {false, true}) {
      WeightStream stream({&*file_});
      for (const auto& stacked : matrices) stream.expect(stacked);
      ASSERT_TRUE(stream.start(around_cache).ok());
      for (std::size_t i = 0; i < matrices.size(); ++i) {
        kernels::WeightFeed* feed = stream.feed(matrices[i]);
        EXPECT_EQ(feed != nullptr, fed[i]) << i;
        const std::int64_t whole[] = {matrices[i].front().columns};
        const auto streamed = PackedMatrix::pack(matrices[i], whole, context_, feed);
        const auto mapped = PackedMatrix::pack(matrices[i], whole, context_);
        ASSERT_TRUE(streamed.ok()) << streamed.error().message();
        ASSERT_TRUE(mapped.ok());
        ASSERT_EQ(streamed->bytes(), mapped->bytes());
        EXPECT_EQ(
            std::memcmp(streamed->packed_bytes().data(), mapped->packed_bytes().data(), mapped->bytes()), 0)
            << i;
      }
    }
  }

  static constexpr std::size_t kBytes = std::size_t{24} << 20;
  std::string path_;
  std::optional<MappedFile> file_;
  ThreadPool pool_;
  kernels::Context context_;
};

TEST_F(WeightStreamTest, PacksTheSameAsFromMemory) {
  ASSERT_TRUE(file_);
  expect_same(
      {{source(100, DType::kBF16, 4000, 1024)},                                   // several pieces
       {source(64, DType::kBF16, 48, 96), source(20'002, DType::kBF16, 33, 96)},  // stacked, odd rows last
       {source(8, DType::kBF16, 1000, 2048, DType::kQ8_0)},
       {source(8, DType::kBF16, 200, 640, DType::kQ4_0)},
       {source(0, DType::kQ8_0, 3000, 1024)},
       {source(2, DType::kQ4_K, 64, 512)},
       {source(1'000, DType::kF16, 500, 320, {}, 4096)},  // columns of wider rows
       {source(4, DType::kF32, 7, 40)}},
      {true, true, true, true, true, true, true, true});
}

TEST_F(WeightStreamTest, LeavesToTheMappingWhatCannotBeCut) {
  ASSERT_TRUE(file_);
  // A part of 40 rows ends inside a block of 16; 16 rows of 1.2 MB are more than a piece.
  expect_same({{source(0, DType::kBF16, 40, 64), source(80'000, DType::kBF16, 16, 64)},
               {source(0, DType::kBF16, 64, 64)},
               {source(0, DType::kBF16, 18, 600'000)},
               {source(0, DType::kBF16, 32, 64)}},
              {false, true, false, true});
}

TEST_F(WeightStreamTest, CountsTheBytesAnnounced) {
  ASSERT_TRUE(file_);
  WeightStream stream({&*file_});
  stream.expect(std::vector{source(0, DType::kBF16, 10, 64), source(0, DType::kBF16, 10, 64)});
  EXPECT_EQ(stream.bytes(), 2U * 10 * 64 * 2);
}

TEST_F(WeightStreamTest, AFileCutShortFailsThePacking) {
  ASSERT_TRUE(file_);
  const std::vector<WeightSource> late = {source(0, DType::kBF16, 4000, 2048)};
  WeightStream stream({&*file_});
  stream.expect(late);
  ASSERT_EQ(::truncate(path_.c_str(), 9'000'000), 0);
  ASSERT_TRUE(stream.start(false).ok());
  const std::int64_t whole[] = {2048};
  const auto packed = PackedMatrix::pack(late, whole, context_, stream.feed(late));
  ASSERT_FALSE(packed.ok());
  EXPECT_NE(packed.error().message().find("the file has become shorter"), std::string::npos);
}

}  // namespace
}  // namespace shoal::parallel
