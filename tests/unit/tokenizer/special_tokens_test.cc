#include "tokenizer/special_tokens.h"

#include <gtest/gtest.h>

#include <string>

namespace shoal::tokenizer {
namespace {

std::string show(const SpecialTokens& tokens, std::string_view text, bool parse_special = true) {
  std::string out;
  for (const Fragment& fragment : tokens.partition(text, parse_special)) {
    out += fragment.id == kNoToken ? "[" + std::string(fragment.text) + "]"
                                   : "<" + std::to_string(fragment.id) + ">";
  }
  return out;
}

TEST(SpecialTokens, AreFoundLongestFirst) {
  const SpecialTokens tokens({{"ab", 1}, {"abc", 2}, {"bcd", 3}});
  EXPECT_EQ(show(tokens, "xabcdab"), "[x]<2>[d]<1>");
  EXPECT_EQ(show(tokens, ""), "");
  EXPECT_EQ(show(tokens, "abab"), "<1><1>");
}

TEST(SpecialTokens, ControlOnesAreTextWhereNotParsed) {
  const SpecialTokens tokens({{"<s>", 1, true}, {"<u>", 2, false}});
  EXPECT_EQ(show(tokens, "<s><u>x", true), "<1><2>[x]");
  EXPECT_EQ(show(tokens, "<s><u>x", false), "[<s>]<2>[x]");
}

TEST(SpecialTokens, TakeTheSpaceBehindThemWhereTheySaySo) {
  const SpecialTokens tokens({{"<e>", 1, true, true}});
  EXPECT_EQ(show(tokens, "a <e> \n b<e>  "), "[a ]<1>[b]<1>");
}

}  // namespace
}  // namespace shoal::tokenizer
