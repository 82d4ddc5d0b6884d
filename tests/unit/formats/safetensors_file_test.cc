// Safetensors files that lie.
#include "formats/safetensors_file.h"

#include <gtest/gtest.h>

#include <string>

#include "formats/hf_folder.h"

namespace shoal::formats {
namespace {

using test::safetensors;
using test::says;

std::string error_of(const std::string& file) {
  const auto parsed =
      SafetensorsFile::parse(std::as_bytes(std::span(file.data(), file.size())), "test.safetensors");
  if (parsed) return "";
  EXPECT_TRUE(parsed.error().message().starts_with("test.safetensors: ")) << parsed.error().message();
  EXPECT_EQ(parsed.error().message().find('\n'), std::string::npos);
  return parsed.error().message();
}

std::string one_tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"w":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

TEST(SafetensorsFile, ReadsTensorsInTheOrderOfTheirBytes) {
  const std::string file = safetensors(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
      R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"none":{"dtype":"I64","shape":[0],"data_offsets":[4,4]}}  )",
      16);
  const auto parsed = SafetensorsFile::parse(std::as_bytes(std::span(file.data(), file.size())), "f");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message();
  ASSERT_EQ(parsed->tensors().size(), 3U);
  EXPECT_EQ(parsed->tensors()[0].name, "a");
  EXPECT_EQ(parsed->tensors()[1].name, "none");
  EXPECT_EQ(parsed->tensors()[1].type, std::nullopt);
  EXPECT_EQ(parsed->tensors()[2].type, DType::kBF16);
  EXPECT_EQ(parsed->tensors()[2].bytes.size(), 12U);
  EXPECT_EQ(parsed->metadata().at("format"), "pt");
}

TEST(SafetensorsFile, RefusesHeadersThatDoNotFit) {
  EXPECT_TRUE(says(error_of(""), {"not a safetensors file"}));
  EXPECT_TRUE(says(error_of("1234567"), {"not a safetensors file"}));
  EXPECT_TRUE(says(error_of(std::string(8, '\xff')), {"header", "limit"}));
  EXPECT_TRUE(says(error_of(std::string("\x10\0\0\0\0\0\0\0{}", 10)), {"16 bytes long", "2 left"}));
  EXPECT_TRUE(says(error_of(safetensors("", 0)), {"no JSON object"}));
  EXPECT_TRUE(says(error_of(safetensors("[1]", 0)), {"no JSON object"}));
  EXPECT_TRUE(says(error_of(safetensors(R"({"w":)", 0)), {"no JSON object"}));
  EXPECT_TRUE(says(error_of(safetensors(std::string(5000, '['), 0)), {"no JSON object"}));
  EXPECT_TRUE(says(error_of(safetensors("{\"w\xff\":1}", 0)), {"no JSON object"}));
}

TEST(SafetensorsFile, RefusesEntriesOfTheWrongKind) {
  EXPECT_TRUE(says(error_of(safetensors(R"({"w":7})", 0)), {"'w'", "no object"}));
  EXPECT_TRUE(
      says(error_of(safetensors(R"({"w":{"dtype":"F32","shape":[1]}})", 4)), {"'w'", "data_offsets"}));
  EXPECT_TRUE(says(error_of(safetensors(R"({"__metadata__":{"a":1}})", 0)), {"'a'", "string"}));
  EXPECT_TRUE(says(error_of(safetensors(one_tensor("F31", "[1]", "[0,4]"), 4)), {"'w'", "F31"}));
  EXPECT_TRUE(says(error_of(safetensors(one_tensor("F32", "[-1]", "[0,4]"), 4)), {"'w'", "dimension"}));
  EXPECT_TRUE(says(error_of(safetensors(one_tensor("F32", "[1.5]", "[0,4]"), 4)), {"'w'", "dimension"}));
  EXPECT_TRUE(says(error_of(safetensors(one_tensor("F32", "[1]", "[0,4,8]"), 4)), {"'w'", "data_offsets"}));
  EXPECT_TRUE(says(error_of(safetensors(one_tensor("F32", "[1]", "[0]"), 4)), {"'w'", "data_offsets"}));
  EXPECT_TRUE(says(error_of(safetensors(one_tensor("F32", "[1]", "[-4,0]"), 4)), {"'w'", "data_offsets"}));
  EXPECT_TRUE(says(error_of(safetensors(one_tensor("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4)),
                   {"'w'", "9 dimensions"}));
}

TEST(SafetensorsFile, RefusesShapesThatLie) {
  EXPECT_TRUE(
      says(error_of(safetensors(one_tensor("F32", "[2]", "[0,4]"), 4)), {"'w'", "4 bytes", "need 8"}));
  EXPECT_TRUE(says(error_of(safetensors(one_tensor("BF16", "[1]", "[0,4]"), 4)), {"'w'", "need 2"}));
  EXPECT_TRUE(says(error_of(safetensors(one_tensor("F4", "[3]", "[0,1]"), 1)), {"'w'", "whole byte"}));
  EXPECT_TRUE(says(error_of(safetensors(one_tensor("F32", "[4294967296,4294967296]", "[0,4]"), 4)),
                   {"'w'", "63 bits"}));
  EXPECT_TRUE(says(error_of(safetensors(one_tensor("F32", "[1]", "[4,0]"), 4)), {"'w'"}));
  EXPECT_TRUE(says(error_of(safetensors(one_tensor("F32", "[2]", "[0,8]"), 4)), {"'w'", "4 bytes there"}));
}

TEST(SafetensorsFile, RefusesOverlapsHolesAndNamesThatStandTwice) {
  const auto two = [](const char* first, const char* second, const char* a, const char* b) {
    return std::string("{\"") + first + R"(":{"dtype":"F32","shape":[1],"data_offsets":)" + a + "},\"" +
           second + R"(":{"dtype":"F32","shape":[1],"data_offsets":)" + b + "}}";
  };
  EXPECT_EQ(error_of(safetensors(two("a", "b", "[0,4]", "[4,8]"), 8)), "");
  EXPECT_TRUE(says(error_of(safetensors(two("a", "b", "[0,4]", "[2,6]"), 6)), {"'a'", "'b'", "overlap"}));
  EXPECT_TRUE(says(error_of(safetensors(two("a", "b", "[0,4]", "[0,4]"), 4)), {"overlap"}));
  EXPECT_TRUE(says(error_of(safetensors(two("a", "b", "[0,4]", "[6,10]"), 10)), {"2 bytes", "'b'"}));
  EXPECT_TRUE(says(error_of(safetensors(two("a", "b", "[0,4]", "[4,8]"), 9)), {"1 bytes at the end"}));
  EXPECT_TRUE(says(error_of(safetensors(two("a", "a", "[0,4]", "[4,8]"), 8)), {"'a'", "twice"}));
}

}  // namespace
}  // namespace shoal::formats
