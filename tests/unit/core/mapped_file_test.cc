#include "core/mapped_file.h"

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>

namespace shoal {
namespace {

std::filesystem::path write_file(const std::string& name, const std::string& content) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / name;
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

TEST(MappedFile, ShowsTheFilesBytes) {
  const auto path = write_file("mapped_file_bytes", "some bytes");
  auto file = MappedFile::open(path);
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(file->bytes().size(), 10U);
  EXPECT_EQ(std::memcmp(file->bytes().data(), "some bytes", 10), 0);
}

TEST(MappedFile, RefusesANamedPipeWithoutWaiting) {
  const auto path = std::filesystem::temp_directory_path() / ("shoal-pipe-" + std::to_string(::getpid()));
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const auto file = MappedFile::open(path);
  std::filesystem::remove(path);
  ASSERT_FALSE(file.ok());
  EXPECT_TRUE(file.error().message().ends_with("not a regular file"));
}

TEST(MappedFile, MayBeDroppedAndReadAgain) {
  const auto path = write_file("mapped_file_drop", std::string(100'000, 'x'));
  auto file = MappedFile::open(path);
  ASSERT_TRUE(file.ok());
  file->drop(100, 1'000'000);  // past the end: cut to the file
  EXPECT_EQ(static_cast<char>(file->bytes()[99'999]), 'x');
}

TEST(MappedFile, ReadsWithoutTheMapping) {
  std::string content;
  for (int i = 0; i < 30'000; ++i) content += std::to_string(i);
  const auto file = MappedFile::open(write_file("mapped_file_read", content));
  ASSERT_TRUE(file.ok());
  // Places in a page are those of the file, as reads around the cache want them.
  alignas(4096) static std::byte memory[3 * 4096];
  for (const std::size_t offset :
       {std::size_t{0}, std::size_t{4096}, std::size_t{5000}, content.size() - 4000}) {
    for (const bool around_cache : {false, true}) {
      const std::span<std::byte> out(memory + offset % 4096, 4000);
      ASSERT_TRUE(file->read(offset, out, around_cache).ok());
      EXPECT_EQ(std::memcmp(out.data(), content.data() + offset, out.size()), 0) << offset << around_cache;
    }
  }
  const Status past = file->read(content.size() - 10, std::span(memory).first(20), false);
  EXPECT_EQ(past.code(), ErrorCode::kIo);
  EXPECT_NE(past.message().find("the file has become shorter"), std::string::npos);
}

TEST(MappedFile, AnEmptyFileHasNoBytes) {
  auto file = MappedFile::open(write_file("mapped_file_empty", ""));
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->bytes().empty());
}

TEST(MappedFile, NamesThePathThatIsMissing) {
  auto file = MappedFile::open("/no/such/model.gguf");
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code(), ErrorCode::kNotFound);
  EXPECT_NE(file.error().message().find("/no/such/model.gguf"), std::string::npos);
}

TEST(MappedFile, RefusesAFolder) {
  auto file = MappedFile::open(testing::TempDir());
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.error().message().find("not a regular file"), std::string::npos);
}

}  // namespace
}  // namespace shoal
