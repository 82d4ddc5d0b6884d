#include "tokenizer/regex_split.h"

#include <gtest/gtest.h>

#include <string>

#include "tokenizer/pretokenizers.h"
#include "tokenizer/utf8.h"

namespace shoal::tokenizer {
namespace {

std::vector<std::string_view> split(const std::vector<std::string>& patterns, std::string_view text) {
  const auto splitter = RegexSplitter::compile(patterns);
  EXPECT_TRUE(splitter.ok()) << splitter.error().message();
  const auto pieces = splitter->split(text);
  EXPECT_TRUE(pieces.ok()) << pieces.error().message();
  return *pieces;
}

using Pieces = std::vector<std::string_view>;

TEST(RegexSplitter, KeepsWhatLiesBetweenMatches) {
  EXPECT_EQ(split({"[0-9]+"}, "a12b3"), (Pieces{"a", "12", "b", "3"}));
  EXPECT_EQ(split({"[0-9]+"}, ""), Pieces{});
}

TEST(RegexSplitter, LaterPatternsSeeThePiecesOfEarlierOnesAlone) {
  EXPECT_EQ(split({"b", "a+$"}, "aabaa"), (Pieces{"aa", "b", "aa"}));
}

TEST(Regex, MeansUnicodeWhiteSpaceByItsSpaceClass) {
  EXPECT_EQ(split({R"(\s+)"}, "a\u00A0\u2028\u3000\u0085 b").size(), 3u);
  EXPECT_EQ(split({R"(\s+)"}, "a\u180Eb").size(), 1u);
  EXPECT_EQ(split({R"([^\s]+)"}, "a\u3000b"), (Pieces{"a", "\u3000", "b"}));
  EXPECT_EQ(split({R"(\S+)"}, "a b"), (Pieces{"a", " ", "b"}));
  EXPECT_EQ(split({R"([\\s]+)"}, "as\\b"), (Pieces{"a", "s\\", "b"}));  // an escaped backslash, then s
}

TEST(Regex, NamesAPatternThatDoesNotCompile) {
  const auto regex = Regex::compile("(a");
  ASSERT_FALSE(regex.ok());
  EXPECT_NE(regex.error().message().find("(a"), std::string::npos);
}

TEST(Regex, GivesUpOnExponentialPatternsWithAnError) {
  const auto regex = Regex::compile("(?:a|aa)+$");
  ASSERT_TRUE(regex.ok());
  Regex::Match match{};
  const auto found = regex->find(std::string(3000, 'a') + "b", 0, match);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code(), ErrorCode::kExhausted);
}

TEST(Pretokenizers, EveryKnownOneCompilesAndLosesNoByte) {
  const auto unknown = find_pretokenizer("no-such-family");
  ASSERT_FALSE(unknown.ok());
  const std::string message = unknown.error().message();
  EXPECT_NE(message.find("'no-such-family'"), std::string::npos);
  const std::size_t list = message.find("known: ");
  ASSERT_NE(list, std::string::npos);
  std::size_t count = 0;
  const std::string text = "It's 12345 o'clock,  \u4F60\u597D!\r\n\n\t x\u0301\u00BD \U0001F600~~ DON'T   ";
  for (std::size_t at = list + 7; at < message.size(); ++count) {
    const std::size_t end = std::min(message.find(", ", at), message.size());
    const std::string name = message.substr(at, end - at);
    const auto pre = find_pretokenizer(name);
    ASSERT_TRUE(pre.ok()) << name;
    std::string joined;
    for (const std::string_view piece : split(pre->patterns, text)) {
      EXPECT_FALSE(piece.empty()) << name;
      EXPECT_TRUE(is_valid_utf8(piece)) << name;
      joined += piece;
    }
    EXPECT_EQ(joined, text) << name;
    at = end + 2;
  }
  EXPECT_GT(count, 50u);
}

TEST(Pretokenizers, SplitAsTheirFamiliesDo) {
  const auto pieces = [](std::string_view name, std::string_view text) {
    return split(find_pretokenizer(name)->patterns, text);
  };
  EXPECT_EQ(pieces("smollm", "it's 12  x"), (Pieces{"it", "'s", " ", "1", "2", " ", " x"}));
  EXPECT_EQ(pieces("llama-bpe", "IT'S 1234\n x"), (Pieces{"IT", "'S", " ", "123", "4", "\n", " x"}));
  EXPECT_EQ(pieces("qwen2", "x1234"), (Pieces{"x", "1", "2", "3", "4"}));
  EXPECT_EQ(pieces("gpt-4o", "fooBar's"), (Pieces{"foo", "Bar's"}));
}

TEST(Pretokenizers, StayLinearOnLongTextsWithoutWords) {
  // Each is 200 KB; a quadratic split would take minutes.
  for (const char* name :
       {"smollm", "llama-bpe", "deepseek-llm", "deepseek-v3", "gpt-4o", "tekken", "default"}) {
    for (const char* unit : {"a", " ", "\n", "7", "!", "A", "\u00E9", "\u4F60"}) {
      std::string text;
      while (text.size() < 200'000) text += unit;
      text += "x";
      std::size_t bytes = 0;
      for (const std::string_view piece : split(find_pretokenizer(name)->patterns, text))
        bytes += piece.size();
      ASSERT_EQ(bytes, text.size()) << name;
    }
  }
}

}  // namespace
}  // namespace shoal::tokenizer
