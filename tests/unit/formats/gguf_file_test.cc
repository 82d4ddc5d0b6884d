#include "formats/gguf_file.h"

#include <gtest/gtest.h>

#include <limits>

#include "formats/gguf_builder.h"

namespace shoal::formats {
namespace {

using test::GgufBuilder;
using test::says;

constexpr std::uint32_t kF32 = 0;
constexpr std::uint32_t kQ8_0 = 8;
constexpr std::uint64_t kHuge = std::uint64_t{1} << 62;

// Two tensors and one value of every kind.
GgufBuilder sound_file() {
  GgufBuilder b;
  b.preamble(2, 6);
  b.text("general.architecture").type(GgufType::kString).text("llama");
  b.uint32("a.count", 7);
  b.text("a.ratio").type(GgufType::kFloat32).put(0.5F);
  b.text("a.flag").type(GgufType::kBool).put(std::uint8_t{1});
  b.text("a.words")
      .type(GgufType::kArray)
      .type(GgufType::kString)
      .put(std::uint64_t{2})
      .text("one")
      .text("two");
  b.text("a.numbers").type(GgufType::kArray).type(GgufType::kInt32).put(std::uint64_t{3});
  b.put(1).put(-2).put(3);
  b.tensor("x", {8, 2}, kF32, 0);
  b.tensor("y", {32}, kQ8_0, 64);
  return b.align().zeros(64 + 34);
}

TEST(GgufFile, ReadsEveryKindOfValue) {
  const GgufBuilder bytes = sound_file();
  const auto file = bytes.parse();
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_EQ(*file->get_string("general.architecture"), "llama");
  EXPECT_EQ(*file->get_uint("a.count"), 7U);
  EXPECT_EQ(*file->get_float("a.ratio"), 0.5);
  EXPECT_TRUE(*file->get_bool("a.flag"));
  EXPECT_EQ(*file->get_strings("a.words"), (std::vector<std::string_view>{"one", "two"}));
  EXPECT_EQ(*file->get_int32s("a.numbers"), (std::vector<std::int32_t>{1, -2, 3}));
  EXPECT_EQ(*file->get_floats("a.numbers"), (std::vector<float>{1.0F, -2.0F, 3.0F}));
  EXPECT_EQ(*file->get_uint("absent", 9), 9U);
}

TEST(GgufFile, ReadsTensorsWithShapeTypeAndPlace) {
  const GgufBuilder bytes = sound_file();
  const auto file = bytes.parse();
  ASSERT_TRUE(file) << file.error().message();
  ASSERT_EQ(file->tensors().size(), 2U);
  const GgufTensor* x = file->tensor("x");
  ASSERT_NE(x, nullptr);
  EXPECT_EQ(x->n_dims, 2);
  EXPECT_EQ(x->row_length(), 8);
  EXPECT_EQ(x->rows(), 2);
  EXPECT_EQ(x->bytes.size(), 64U);
  EXPECT_EQ(file->tensor("y")->type, DType::kQ8_0);
  EXPECT_EQ(file->tensor("y")->bytes.data() - x->bytes.data(), 64);
  EXPECT_EQ(file->tensor("z"), nullptr);
}

TEST(GgufFile, WrongTypeNamesKeyFoundAndExpected) {
  const GgufBuilder bytes = sound_file();
  const auto file = bytes.parse();
  ASSERT_TRUE(file);
  EXPECT_TRUE(says(file->get_uint("general.architecture").error().message(),
                   {"test.gguf", "'general.architecture'", "string", "integer"}));
  EXPECT_FALSE(file->get_uint("a.ratio", 3).ok()) << "a fallback must not hide a wrong type";
  EXPECT_TRUE(says(file->get_strings("a.numbers").error().message(), {"array of int32"}));
  EXPECT_EQ(file->get_string("absent").error().code(), ErrorCode::kNotFound);
}

TEST(GgufFile, NegativeNumberIsNoUnsignedOne) {
  GgufBuilder b;
  b.preamble(0, 1).text("n").type(GgufType::kInt32).put(std::int32_t{-1});
  const auto file = b.parse();
  ASSERT_TRUE(file);
  EXPECT_FALSE(file->get_uint("n").ok());
  EXPECT_EQ(*file->get_int("n"), -1);
}

TEST(GgufFile, EveryTruncationIsRefusedInOneSentence) {
  const std::vector<std::byte> whole = sound_file().bytes();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // A copy of exactly that size: a read past it is seen by the address sanitizer.
    const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    const auto file = GgufFile::parse(cut, "cut.gguf");
    ASSERT_FALSE(file.ok()) << "accepted at " << size << " of " << whole.size();
    EXPECT_TRUE(says(file.error().message(), {"cut.gguf: "}));
    EXPECT_EQ(file.error().message().find('\n'), std::string::npos);
  }
}

TEST(GgufFile, EveryByteOfTheHeaderMayBeWrongWithoutHarm) {
  const std::vector<std::byte> whole = sound_file().bytes();
  int refused = 0;
  for (std::size_t at = 0; at < whole.size() - 98; ++at) {
    for (const unsigned flip : {0xffU, 0x80U, 0x01U}) {
      std::vector<std::byte> bytes = whole;
      bytes[at] ^= static_cast<std::byte>(flip);
      const auto file = GgufFile::parse(bytes, "flipped.gguf");
      if (!file.ok()) {
        ++refused;
        continue;
      }
      // What was accepted must be whole: read it all.
      for (const GgufEntry& entry : file->metadata()) {
        (void)entry.value.as_strings();
        (void)entry.value.as_floats();
        (void)entry.value.as_uint();
      }
      unsigned sum = 0;
      for (const GgufTensor& tensor : file->tensors()) {
        for (const std::byte b : tensor.bytes) sum += std::to_integer<unsigned>(b);
      }
      EXPECT_EQ(sum, 0U);
    }
  }
  EXPECT_GT(refused, 300);
}

TEST(GgufFile, RefusesOtherFormats) {
  EXPECT_TRUE(says(GgufBuilder().raw("PK\3\4 something else").error(), {"not a GGUF file"}));
  EXPECT_TRUE(says(GgufBuilder().error(), {"not a GGUF file"}));
  EXPECT_TRUE(says(GgufBuilder().preamble(0, 0, 1).error(), {"version 1"}));
  EXPECT_TRUE(says(GgufBuilder().preamble(0, 0, 4).error(), {"version 4"}));
  EXPECT_TRUE(says(GgufBuilder().preamble(0, 0, 0x03000000).error(), {"big-endian"}));
}

TEST(GgufFile, ReadsVersion2) { EXPECT_EQ(GgufBuilder().preamble(0, 1, 2).uint32("k", 1).error(), ""); }

TEST(GgufFile, CountsBeyondTheFileAreRefusedBeforeAllocation) {
  EXPECT_TRUE(says(GgufBuilder().preamble(0, kHuge).zeros(64).error(), {"metadata entries"}));
  EXPECT_TRUE(says(GgufBuilder().preamble(kHuge, 0).zeros(64).error(), {"tensors"}));
  GgufBuilder strings;
  strings.preamble(0, 1).text("a").type(GgufType::kArray).type(GgufType::kString).put(kHuge).zeros(64);
  EXPECT_TRUE(says(strings.error(), {"array 'a'", "4611686018427387904"}));
  GgufBuilder numbers;
  numbers.preamble(0, 1).text("a").type(GgufType::kArray).type(GgufType::kUint64).put(kHuge).zeros(64);
  EXPECT_TRUE(says(numbers.error(), {"array 'a'"}));
}

TEST(GgufFile, StringLengthsBeyondTheFileAreRefused) {
  GgufBuilder key;
  key.preamble(0, 1).put(std::numeric_limits<std::uint64_t>::max()).zeros(64);
  EXPECT_TRUE(says(key.error(), {"metadata entry 0"}));
  GgufBuilder value;
  value.preamble(0, 1).text("k").type(GgufType::kString).put(kHuge).zeros(64);
  EXPECT_TRUE(says(value.error(), {"'k'"}));
  GgufBuilder element;
  element.preamble(0, 1).text("k").type(GgufType::kArray).type(GgufType::kString).put(std::uint64_t{2});
  element.text("fine").put(std::numeric_limits<std::uint64_t>::max());
  EXPECT_TRUE(says(element.error(), {"element 1", "'k'"}));
}

TEST(GgufFile, RefusesArraysOfArraysAndUnknownTypes) {
  GgufBuilder nested;
  nested.preamble(0, 1)
      .text("k")
      .type(GgufType::kArray)
      .type(GgufType::kArray)
      .put(std::uint64_t{1})
      .zeros(64);
  EXPECT_TRUE(says(nested.error(), {"array of arrays"}));
  EXPECT_TRUE(says(GgufBuilder().preamble(0, 1).text("k").put(std::uint32_t{13}).zeros(8).error(),
                   {"'k'", "unknown type 13"}));
  EXPECT_TRUE(says(GgufBuilder().preamble(0, 1).text("k").type(GgufType::kBool).put(std::uint8_t{2}).error(),
                   {"bool"}));
}

TEST(GgufFile, RefusesNamesThatStandTwice) {
  EXPECT_TRUE(says(GgufBuilder().preamble(0, 2).uint32("k", 1).uint32("k", 2).error(), {"'k' stands twice"}));
  GgufBuilder tensors;
  tensors.preamble(2, 0).tensor("t", {4}, kF32, 0).tensor("t", {4}, kF32, 32).align().zeros(64);
  EXPECT_TRUE(says(tensors.error(), {"'t' stands twice"}));
}

TEST(GgufFile, RefusesAlignmentThatIsNone) {
  for (const std::uint32_t alignment : {0U, 1U, 4U, 24U, 1U << 30}) {
    EXPECT_TRUE(says(GgufBuilder().preamble(0, 1).uint32("general.alignment", alignment).error(),
                     {"general.alignment"}))
        << alignment;
  }
  EXPECT_EQ(GgufBuilder().preamble(0, 1).uint32("general.alignment", 64).error(), "");
}

std::string error_of_one_tensor(const std::vector<std::uint64_t>& dims, std::uint32_t dtype,
                                std::uint64_t offset, std::size_t data) {
  return GgufBuilder().preamble(1, 0).tensor("t", dims, dtype, offset).align().zeros(data).error();
}

TEST(GgufFile, RefusesTensorsThatDoNotFit) {
  EXPECT_EQ(error_of_one_tensor({8}, kF32, 0, 32), "");
  EXPECT_TRUE(says(error_of_one_tensor({8}, kF32, 0, 31), {"'t'", "32 bytes"}));
  EXPECT_TRUE(says(error_of_one_tensor({8}, kF32, 32, 32), {"offset 32"}));
  EXPECT_TRUE(says(error_of_one_tensor({8}, kF32, kHuge, 32), {"'t'"}));
  EXPECT_TRUE(says(error_of_one_tensor({8}, kF32, 4, 64), {"not a multiple of the alignment"}));
}

TEST(GgufFile, RefusesImpossibleShapes) {
  EXPECT_TRUE(says(error_of_one_tensor({}, kF32, 0, 64), {"0 dimensions"}));
  EXPECT_TRUE(says(error_of_one_tensor({1, 1, 1, 1, 1}, kF32, 0, 64), {"5 dimensions"}));
  EXPECT_TRUE(says(error_of_one_tensor({8, 0}, kF32, 0, 64), {"no elements"}));
  EXPECT_TRUE(says(error_of_one_tensor({kHuge, 4}, kF32, 0, 64), {"more elements"}));
  EXPECT_TRUE(
      says(error_of_one_tensor({std::numeric_limits<std::uint64_t>::max()}, kF32, 0, 64), {"more elements"}));
  EXPECT_TRUE(says(error_of_one_tensor({kHuge}, kF32, 0, 64), {"more bytes"}));
  EXPECT_TRUE(says(error_of_one_tensor({33}, kQ8_0, 0, 64), {"rows of 33", "q8_0"}));
  EXPECT_TRUE(says(error_of_one_tensor({8}, 999, 0, 64), {"unknown type 999"}));
}

TEST(GgufFile, RefusesOverlap) {
  GgufBuilder b;
  b.preamble(2, 0).tensor("late", {8}, kF32, 32).tensor("early", {9}, kF32, 0).align().zeros(64);
  EXPECT_TRUE(says(b.error(), {"'early'", "'late'", "overlap"}));
}

TEST(GgufFile, HostileNamesAreMadePrintable) {
  const std::string name = "k\n\x1b[31m" + std::string(500, 'x');
  const std::string error = GgufBuilder().preamble(0, 1).text(name).put(std::uint32_t{99}).zeros(8).error();
  EXPECT_EQ(error.find('\n'), std::string::npos);
  EXPECT_EQ(error.find('\x1b'), std::string::npos);
  EXPECT_LT(error.size(), 200U);
}

TEST(GgufFile, OpenNamesAFileThatIsNotThere) {
  const auto file = GgufFile::open("/nowhere/model.gguf");
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code(), ErrorCode::kNotFound);
  EXPECT_TRUE(says(file.error().message(), {"/nowhere/model.gguf"}));
}

}  // namespace
}  // namespace shoal::formats
