#include "formats/read_ahead.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace shoal::formats {
namespace {

// 40 MB in which every 8 bytes hold their offset: more than all buffers together would, were there but 4 MiB
// each.
class ReadAheadTest : public ::testing::Test {
 protected:
  ReadAheadTest() : path_(testing::TempDir() + "read_ahead_" + std::to_string(::getpid())) {
    std::vector<std::uint64_t> words(kBytes / 8);
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = 8 * i;
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(words.data()), static_cast<std::streamsize>(kBytes));
    auto opened = MappedFile::open(path_);
    if (opened.ok()) file_.emplace(std::move(*opened));
  }
  ~ReadAheadTest() override { ::unlink(path_.c_str()); }

  bool right(const ReadAhead::Part& part, std::span<const std::byte> bytes) const {
    return bytes.size() == part.length &&
           std::memcmp(bytes.data(), file_->bytes().data() + part.offset, part.length) == 0;
  }
  // Pieces that begin and end anywhere, some longer than a page by little, some as long as they may be.
  std::vector<ReadAhead::Part> parts() const {
    std::vector<ReadAhead::Part> out;
    for (std::size_t at = 3, i = 0; at < kBytes; ++i) {
      const std::size_t length = i % 5 == 0 ? ReadAhead::kLongest : 1 + (i * 7919) % 900'000;
      out.push_back({&*file_, at, std::min(length, kBytes - at)});
      at += out.back().length;
    }
    return out;
  }

  static constexpr std::size_t kBytes = 40'000'000;
  std::string path_;
  std::optional<MappedFile> file_;
};

TEST_F(ReadAheadTest, GivesThePartsBytesToSeveralThreads) {
  ASSERT_TRUE(file_);
  for (const bool around_cache : {false, true}) {
    const auto wanted = parts();
    auto reader = ReadAhead::start(wanted, around_cache);
    ASSERT_TRUE(reader.ok()) << reader.error().message();
    std::atomic<std::size_t> next{0};
    std::atomic<int> wrong{0};
    const auto take_all = [&] {
      for (std::size_t i = 0; (i = next.fetch_add(1)) < wanted.size();) {
        const auto bytes = reader->take(i);
        if (!bytes.ok() || !right(wanted[i], *bytes)) ++wrong;
        reader->give_back(i);
      }
    };
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) threads.emplace_back(take_all);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0) << around_cache;
  }
}

TEST_F(ReadAheadTest, EndsWhereNobodyTakesWhatWasRead) {
  ASSERT_TRUE(file_);
  auto reader = ReadAhead::start(parts(), false);
  ASSERT_TRUE(reader.ok());
  EXPECT_TRUE(reader->take(0).ok());
}

TEST_F(ReadAheadTest, AFileThatWasCutShortIsAnErrorForAll) {
  ASSERT_TRUE(file_);
  ASSERT_EQ(::truncate(path_.c_str(), 5'000'000), 0);
  for (const bool around_cache : {false, true}) {
    const std::vector<ReadAhead::Part> wanted = {
        {&*file_, 0, 1000}, {&*file_, 4'999'000, 2000}, {&*file_, 0, 1000}};
    auto reader = ReadAhead::start(wanted, around_cache);
    ASSERT_TRUE(reader.ok());
    const auto cut = reader->take(1);
    ASSERT_FALSE(cut.ok());
    EXPECT_EQ(cut.error().code(), ErrorCode::kIo);
    EXPECT_NE(cut.error().message().find("cannot read at byte 5000000: the file has become shorter"),
              std::string::npos)
        << cut.error().message();
    EXPECT_FALSE(reader->take(2).ok());
  }
}

}  // namespace
}  // namespace shoal::formats
