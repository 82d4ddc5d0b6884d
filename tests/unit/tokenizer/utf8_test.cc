#include "tokenizer/utf8.h"

#include <gtest/gtest.h>

#include <random>

namespace shoal::tokenizer {
namespace {

constexpr std::string_view kBad = kReplacementCharacter;

std::string bad(int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += kBad;
  return out;
}

TEST(Utf8, AcceptsEveryScalarValueAndNothingElse) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    std::string text;
    append_utf8(c, text);
    const bool surrogate = c >= 0xD800 && c < 0xE000;
    ASSERT_EQ(is_valid_utf8(text), !surrogate) << static_cast<std::uint32_t>(c);
    std::size_t at = 0;
    ASSERT_EQ(next_code_point(text, at), c);
    ASSERT_EQ(at, text.size());
  }
}

TEST(Utf8, ReplacesEachMaximalBrokenStartOnce) {
  EXPECT_EQ(to_valid_utf8("a\xE2\x82z"), "a" + bad(1) + "z");           // a start of two bytes
  EXPECT_EQ(to_valid_utf8("\xF0\x9F\x98"), bad(1));                     // unfinished at the end
  EXPECT_EQ(to_valid_utf8("\x80\xBF"), bad(2));                         // stray continuation bytes
  EXPECT_EQ(to_valid_utf8("\xC0\xAF"), bad(2));                         // overlong
  EXPECT_EQ(to_valid_utf8("\xE0\x80\x80"), bad(3));                     // overlong
  EXPECT_EQ(to_valid_utf8("\xED\xA0\x80"), bad(3));                     // a surrogate
  EXPECT_EQ(to_valid_utf8("\xF4\x90\x80\x80"), bad(4));                 // past U+10FFFF
  EXPECT_EQ(to_valid_utf8("\xF5\xFF"), bad(2));                         // bytes that never occur
  EXPECT_EQ(to_valid_utf8("\xE2\x82\xE2\x82\xAC"), bad(1) + "\u20AC");  // broken, then whole
}

TEST(Utf8Assembler, GivesTheSameForAnyCutOfRandomBytes) {
  std::mt19937 random(1);
  const std::string alphabet = "a\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80\xED\xA0\xFF";
  for (int run = 0; run < 2000; ++run) {
    std::string bytes;
    for (int i = 0; i < 24; ++i) bytes += alphabet[random() % alphabet.size()];
    Utf8Assembler assembler;
    std::string joined;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t n = random() % 4;
      const std::size_t before = joined.size();
      assembler.push(std::string_view(bytes).substr(at, n), joined);
      ASSERT_TRUE(is_valid_utf8(std::string_view(joined).substr(before)));
      at += n;
    }
    assembler.finish(joined);
    ASSERT_EQ(joined, to_valid_utf8(bytes));
  }
}

}  // namespace
}  // namespace shoal::tokenizer
