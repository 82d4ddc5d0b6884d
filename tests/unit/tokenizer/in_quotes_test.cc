#include "tokenizer/in_quotes.h"

#include <gtest/gtest.h>

namespace shoal::tokenizer {
namespace {

TEST(InQuotes, KeepsWhatCanBeRead) {
  EXPECT_EQ(in_quotes("Ġhello"), "'Ġhello'");
  EXPECT_EQ(in_quotes(""), "''");
  EXPECT_EQ(in_quotes("it's 日本"), "'it's 日本'");
}

TEST(InQuotes, SpellsOutWhatWouldSteerATerminalOrBreakALine) {
  EXPECT_EQ(in_quotes("a\x1b[2Jb\nc\x7f"), R"('a\x1b[2Jb\x0ac\x7f')");
  EXPECT_EQ(in_quotes("\xc2\x9b"), R"('\xc2\x9b')");
  EXPECT_EQ(in_quotes(std::string_view("\0", 1)), R"('\x00')");
}

TEST(InQuotes, SpellsOutBytesThatAreNotUtf8) {
  EXPECT_EQ(in_quotes("a\xffz"), R"('a\xffz')");
  EXPECT_EQ(in_quotes("\xe6\x97"), R"('\xe6\x97')");
  EXPECT_EQ(in_quotes("\xed\xa0\x80"), R"('\xed\xa0\x80')");
}

TEST(InQuotes, IsCutBetweenCharacters) {
  EXPECT_EQ(in_quotes("abcdef", 6), "'abcdef'");
  EXPECT_EQ(in_quotes("abcdefg", 6), "'abcdef...'");
  EXPECT_EQ(in_quotes("日本語", 7), "'日本...'");
}

}  // namespace
}  // namespace shoal::tokenizer
