#include "formats/gguf_writer.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "formats/gguf_builder.h"

namespace shoal::formats {
namespace {

using test::says;
using test::ScratchFolder;

std::span<const std::byte> bytes_of(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

TEST(GgufWriter, WhatIsWrittenIsRead) {
  const ScratchFolder folder;
  GgufWriter writer(folder / "a.gguf", 64);
  writer.add_string("general.architecture", "llama");
  writer.add_uint32("u", 4000000000U);
  writer.add_uint64("big", std::uint64_t{1} << 63);
  writer.add_int32("i", -5);
  writer.add_float32("f", 1.25F);
  writer.add_bool("yes", true);
  const std::vector<std::string> words{"", "grün", std::string(1000, 'w')};
  writer.add_strings("words", words);
  writer.add_int32s("ints", std::vector<std::int32_t>{3, -4});
  writer.add_float32s("floats", std::vector<float>{0.5F});
  writer.add_tensor("m", DType::kF32, std::array<std::int64_t, 2>{3, 5});
  writer.add_tensor("v", DType::kF32, std::array<std::int64_t, 1>{7});
  ASSERT_TRUE(writer.begin().ok());
  std::vector<float> m(15);
  std::iota(m.begin(), m.end(), 1.0F);
  const std::vector<float> v(7, -1.0F);
  // In pieces that end anywhere.
  ASSERT_TRUE(writer.write(bytes_of(m).first(7)).ok());
  ASSERT_TRUE(writer.write(bytes_of(m).subspan(7)).ok());
  ASSERT_TRUE(writer.write(bytes_of(v)).ok());
  ASSERT_TRUE(writer.finish().ok());

  const auto file = GgufFile::open(folder / "a.gguf");
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_EQ(file->alignment(), 64U);
  EXPECT_EQ(*file->get_uint("u"), 4000000000U);
  EXPECT_EQ(*file->get_uint("big"), std::uint64_t{1} << 63);
  EXPECT_EQ(*file->get_int("i"), -5);
  EXPECT_EQ(*file->get_float("f"), 1.25);
  EXPECT_TRUE(*file->get_bool("yes"));
  EXPECT_EQ(*file->get_strings("words"), (std::vector<std::string_view>(words.begin(), words.end())));
  EXPECT_EQ(*file->get_int32s("ints"), (std::vector<std::int32_t>{3, -4}));
  const auto same = [](std::span<const std::byte> a, std::span<const std::byte> b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  };
  EXPECT_TRUE(same(file->tensor("m")->bytes, bytes_of(m)));
  EXPECT_TRUE(same(file->tensor("v")->bytes, bytes_of(v)));
  EXPECT_EQ(file->tensor("m")->rows(), 5);
}

TEST(GgufWriter, RefusesWhatNoFileMayHold) {
  const ScratchFolder folder;
  GgufWriter twice(folder / "b.gguf");
  twice.add_uint32("k", 1);
  twice.add_uint32("k", 2);
  EXPECT_TRUE(says(twice.begin().message(), {"'k'"}));
  GgufWriter rows(folder / "b.gguf");
  rows.add_tensor("t", DType::kQ4_K, std::array<std::int64_t, 1>{64});
  EXPECT_TRUE(says(rows.begin().message(), {"q4_k"}));
  EXPECT_FALSE(std::filesystem::exists(folder / "b.gguf"));
}

TEST(GgufWriter, TooFewOrTooManyBytesLeaveNoFile) {
  const ScratchFolder folder;
  const std::vector<float> nine(9);
  {
    GgufWriter writer(folder / "c.gguf");
    writer.add_tensor("t", DType::kF32, std::array<std::int64_t, 1>{8});
    ASSERT_TRUE(writer.begin().ok());
    ASSERT_TRUE(writer.write(bytes_of(nine).first(16)).ok());
    EXPECT_TRUE(says(writer.finish().message(), {"'t' was not written whole"}));
  }
  {
    GgufWriter writer(folder / "c.gguf");
    writer.add_tensor("t", DType::kF32, std::array<std::int64_t, 1>{8});
    ASSERT_TRUE(writer.begin().ok());
    EXPECT_TRUE(says(writer.write(bytes_of(nine)).message(), {"more than"}));
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "c.gguf"));
  EXPECT_FALSE(std::filesystem::exists(folder / "c.gguf.part"));
}

TEST(GgufWriter, AFolderThatIsNotThereIsNamed) {
  GgufWriter writer("/nowhere/at/all.gguf");
  const Status status = writer.begin();
  EXPECT_EQ(status.code(), ErrorCode::kIo);
  EXPECT_TRUE(says(status.message(), {"/nowhere/at/all.gguf"}));
}

}  // namespace
}  // namespace shoal::formats
