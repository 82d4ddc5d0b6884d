#include "parallel/packed_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace shoal::parallel {
namespace {

namespace fs = std::filesystem;

constexpr formats::Fingerprint kKey{0x0123456789abcdef, 0xfedcba9876543210};

// Several pieces, less than a page, a page's bytes exactly, none of a piece's multiple.
const std::vector<std::size_t> kSizes = {(std::size_t{9} << 20) + 64, 320, 4096,
                                         (std::size_t{4} << 20) - 4096};

class PackedFileTest : public ::testing::Test {
 protected:
  PackedFileTest()
      : folder_(fs::path(testing::TempDir()) / ("packed_file_" + std::to_string(::getpid()))),
        pool_({.threads = 3, .spin = std::chrono::microseconds(0), .pin = false}) {
    std::uint64_t state = 9;
    for (const std::size_t size : kSizes) {
      matrices_.emplace_back(size);
      for (std::byte& byte : matrices_.back()) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        byte = static_cast<std::byte>(state >> 56);
      }
    }
  }
  ~PackedFileTest() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  static PackedFileLayout layout(formats::Fingerprint key = kKey) { return {key, kSizes}; }
  fs::path name() const { return folder_ / layout().file_name(); }

  Status write(bool replace = false) {
    SHOAL_ASSIGN(writer, PackedFileWriter::begin(folder_, layout()));
    for (const auto& matrix : matrices_) SHOAL_TRY(writer.append(matrix, pool_));
    return writer.commit(replace);
  }
  void expect_whole() {
    const auto file = PackedFile::open(folder_, layout(), pool_);
    ASSERT_TRUE(file.ok()) << file.error().message();
    for (std::size_t i = 0; i < matrices_.size(); ++i) {
      const auto got = file->matrix(i);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(got.data()) % 4096, 0U);
      EXPECT_TRUE(std::equal(got.begin(), got.end(), matrices_[i].begin(), matrices_[i].end())) << i;
    }
  }
  std::string why_not() {
    const auto file = PackedFile::open(folder_, layout(), pool_);
    return file.ok() ? "opened" : file.error().message();
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(folder_)) out.push_back(entry.path().filename().string());
    return out;
  }
  void make_writable() const { fs::permissions(name(), fs::perms::owner_write, fs::perm_options::add); }
  void flip_bit(std::size_t at) const {
    make_writable();
    std::fstream file(name(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(static_cast<std::streamoff>(at));
    const auto byte = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte ^ 0x10));
  }

  fs::path folder_;
  ThreadPool pool_;
  std::vector<std::vector<std::byte>> matrices_;
};

TEST_F(PackedFileTest, GivesBackWhatWasWritten) {
  ASSERT_TRUE(write().ok());
  expect_whole();
  EXPECT_EQ(names(), std::vector<std::string>{"0123456789abcdeffedcba9876543210.packed"});
}

// Matrices that end or begin where pieces do, in the page in front of that, many in one piece, one over
// several.
TEST_F(PackedFileTest, EveryPlaceOfABorderIsWritten) {
  constexpr std::size_t kPiece = PackedFileLayout::kPieceBytes;
  const std::vector<std::vector<std::size_t>> lists = {
      {1},
      {kPiece - 4096},
      {kPiece - 4096, 64},
      {kPiece - 4096 - 100, 5000, 64},
      {kPiece - 4096 + 1, 64},
      {64, 64, 64, kPiece - 4 * 4096, 64},
      {64, 64, 64, kPiece - 4 * 4096 - 64, 2 * kPiece, 64},
      {64, 2 * kPiece - 2 * 4096 - 64, kPiece},
      {3 * kPiece, 64, kPiece / 2, kPiece / 2, kPiece / 2 + 64, 64}};
  const std::vector<std::byte>& bytes = matrices_[0];
  std::vector<std::byte> noise = bytes;
  noise.insert(noise.end(), bytes.begin(), bytes.end());
  for (std::size_t list = 0; list < lists.size(); ++list) {
    const PackedFileLayout at({7, list}, lists[list]);
    auto writer = PackedFileWriter::begin(folder_, at);
    ASSERT_TRUE(writer.ok()) << writer.error().message();
    const auto content = [&](std::size_t i) { return std::span(noise).subspan(i * 64 + 3, lists[list][i]); };
    for (std::size_t i = 0; i < at.matrices(); ++i) ASSERT_TRUE(writer->append(content(i), pool_).ok());
    ASSERT_TRUE(writer->commit(false).ok());
    const auto file = PackedFile::open(folder_, at, pool_);
    ASSERT_TRUE(file.ok()) << list << ": " << file.error().message();
    for (std::size_t i = 0; i < at.matrices(); ++i) {
      const auto got = file->matrix(i);
      const auto want = content(i);
      EXPECT_TRUE(std::equal(got.begin(), got.end(), want.begin(), want.end())) << list << ", matrix " << i;
    }
  }
}

TEST_F(PackedFileTest, AbsentIsNotFound) {
  EXPECT_EQ(PackedFile::open(folder_, layout(), pool_).error().code(), ErrorCode::kNotFound);
}

TEST_F(PackedFileTest, ProgressReachesTheEnd) {
  ASSERT_TRUE(write().ok());
  std::uint64_t last = 0;
  const auto file = PackedFile::open(folder_, layout(), pool_, [&](std::uint64_t done, std::uint64_t total) {
    EXPECT_GT(done, last);
    EXPECT_LE(done, total);
    last = done;
  });
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(last, layout().pieces());
}

TEST_F(PackedFileTest, EveryFlippedBitIsSeen) {
  ASSERT_TRUE(write().ok());
  const PackedFileLayout at = layout();
  const struct {
    std::size_t offset;
    const char* reason;
  } cases[] = {{0, "no file of packed weights"},
               {7, "no file of packed weights"},
               {8, "another version"},
               {12, "another version"},
               {16, "header is damaged"},
               {31, "header is damaged"},
               {32, "header is damaged"},
               {40, "header is damaged"},
               {48, "header is damaged"},
               {56, "header is damaged"},
               {64, "header is damaged"},
               {72, "checksums are damaged"},
               {72 + 8 * at.pieces() - 1, "checksums are damaged"},
               {at.matrix(0).offset, "weights are damaged"},
               {at.matrix(0).offset + kSizes[0] - 1, "weights are damaged"},
               {at.matrix(1).offset + 300, "weights are damaged"},
               {at.matrix(2).offset + 4095, "weights are damaged"},
               {at.file_bytes() - 1, "weights are damaged"}};
  for (const auto& one : cases) {
    flip_bit(one.offset);
    EXPECT_NE(why_not().find(one.reason), std::string::npos) << one.offset << ": " << why_not();
    EXPECT_NE(why_not().find(name().string()), std::string::npos);
    flip_bit(one.offset);
  }
  expect_whole();
}

TEST_F(PackedFileTest, OtherLengthsAreSeen) {
  for (const std::size_t length : {std::size_t{0}, std::size_t{71}, std::size_t{72}, std::size_t{4096},
                                   layout().file_bytes() - 1, layout().file_bytes() + 1}) {
    ASSERT_TRUE(write(true).ok());
    make_writable();
    fs::resize_file(name(), length);
    const char* reason = length < 72 ? "too short" : "length is not";
    EXPECT_NE(why_not().find(reason), std::string::npos) << length << ": " << why_not();
  }
}

// A file under the name of another: copied by hand, or two keys that share a name by accident.
TEST_F(PackedFileTest, WeightsOfSomethingElseAreSeen) {
  ASSERT_TRUE(write().ok());
  const PackedFileLayout other({1, 2}, kSizes);
  fs::copy_file(name(), folder_ / other.file_name());
  const auto by_key = PackedFile::open(folder_, other, pool_);
  ASSERT_FALSE(by_key.ok());
  EXPECT_NE(by_key.error().message().find("something else"), std::string::npos);
  const auto by_size = PackedFile::open(folder_, {kKey, {kSizes[0]}}, pool_);
  ASSERT_FALSE(by_size.ok());
  EXPECT_NE(by_size.error().message().find("something else"), std::string::npos);
}

TEST_F(PackedFileTest, ADamagedFileIsReplacedAWholeOneKept) {
  ASSERT_TRUE(write().ok());
  flip_bit(layout().matrix(1).offset);
  ASSERT_TRUE(write(true).ok());
  expect_whole();
  const auto mapped = PackedFile::open(folder_, layout(), pool_);
  ASSERT_TRUE(write(false).ok());
  struct stat info {};
  ASSERT_EQ(::stat(name().c_str(), &info), 0);
  ASSERT_TRUE(fs::remove(name()));  // as who cleans up does
  EXPECT_TRUE(std::equal(matrices_[0].begin(), matrices_[0].end(), mapped->matrix(0).begin()));
}

TEST_F(PackedFileTest, MatricesOfOtherSizesAreRefused) {
  auto writer = PackedFileWriter::begin(folder_, layout());
  ASSERT_TRUE(writer.ok()) << writer.error().message();
  EXPECT_FALSE(writer->append(matrices_[1], pool_).ok());
  EXPECT_FALSE(writer->commit(false).ok());
  EXPECT_FALSE(fs::exists(name()));
}

// Ended by SIGKILL in the middle: no file has the name, and the next writer removes what was left.
TEST_F(PackedFileTest, AKilledWriterLeavesNothingThatLasts) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ThreadPool alone({.threads = 1, .spin = std::chrono::microseconds(0), .pin = false});
    auto writer = PackedFileWriter::begin(folder_, layout());
    const bool half = writer.ok() && writer->append(matrices_[0], alone).ok();
    (void)!::write(ready[1], half ? "y" : "n", 1);
    for (;;) ::pause();
  }
  char half = 'n';
  ASSERT_EQ(::read(ready[0], &half, 1), 1);
  EXPECT_EQ(half, 'y');
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ::close(ready[0]);
  ::close(ready[1]);

  ASSERT_EQ(names().size(), 1U);
  EXPECT_TRUE(names()[0].ends_with(".tmp")) << names()[0];
  EXPECT_EQ(PackedFile::open(folder_, layout(), pool_).error().code(), ErrorCode::kNotFound);
  ASSERT_TRUE(write().ok());
  EXPECT_EQ(names().size(), 1U);
  expect_whole();
}

TEST_F(PackedFileTest, WritersThatLiveKeepTheirFiles) {
  auto first = PackedFileWriter::begin(folder_, layout());
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(write().ok());
  EXPECT_EQ(names().size(), 2U);
  for (const auto& matrix : matrices_) ASSERT_TRUE(first->append(matrix, pool_).ok());
  EXPECT_TRUE(first->commit(false).ok());
  expect_whole();
}

TEST_F(PackedFileTest, ProcessesThatRaceAllEndUpWithOneFile) {
  constexpr int kProcesses = 4;
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ThreadPool alone({.threads = 1, .spin = std::chrono::microseconds(0), .pin = false});
      bool good = true;
      for (int round = 0; round < 3 && good; ++round) {
        auto writer = PackedFileWriter::begin(folder_, layout());
        good = writer.ok();
        for (std::size_t m = 0; good && m < matrices_.size(); ++m)
          good = writer->append(matrices_[m], alone).ok();
        good = good && writer->commit(round > 0).ok();
        const auto file = PackedFile::open(folder_, layout(), alone);
        good = good && file.ok() && std::memcmp(file->matrix(3).data(), matrices_[3].data(), kSizes[3]) == 0;
      }
      ::_exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(names().size(), 1U);
  expect_whole();
}

// A limit on files stands for a full disk: the reservation fails before anything is packed.
TEST_F(PackedFileTest, NoRoomIsSaidAtTheBeginning) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 20, 1 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto writer = PackedFileWriter::begin(folder_, layout());
    ::_exit(!writer.ok() && writer.error().message().find("cannot take 13 MiB") != std::string::npos ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(names().empty());
}

TEST_F(PackedFileTest, AFolderThatCannotBeIsAnError) {
  std::ofstream(folder_.string() + "x") << "a file";
  const auto writer = PackedFileWriter::begin(folder_.string() + "x/inside", layout());
  ASSERT_FALSE(writer.ok());
  EXPECT_NE(writer.error().message().find("cannot make the folder"), std::string::npos);
  fs::remove(folder_.string() + "x");
}

}  // namespace
}  // namespace shoal::parallel
