#include "tokenizer/unicode_normalization.h"

#include <gtest/gtest.h>

namespace shoal::tokenizer {
namespace {

std::string to_nfc(std::string_view text) { return normalize(text, NormalForm::kNfc); }

TEST(Nfc, ComposesAndOrdersMarks) {
  EXPECT_EQ(to_nfc("e\u0301"), "\u00E9");
  EXPECT_EQ(to_nfc("\u212B"), "\u00C5");  // Angstrom sign
  EXPECT_EQ(to_nfc("A\u030A"), "\u00C5");
  EXPECT_EQ(to_nfc("q\u0307\u0323"), "q\u0323\u0307");  // sorted, composes with nothing
  EXPECT_EQ(to_nfc("s\u0323\u0307"), "\u1E69");         // two steps
  EXPECT_EQ(to_nfc("s\u0307\u0323"), "\u1E69");
  EXPECT_EQ(to_nfc("\u0958"), "\u0915\u093C");  // excluded from composition
  EXPECT_EQ(to_nfc("\u0344"), "\u0308\u0301");
}

TEST(Nfc, ComputesHangul) {
  EXPECT_EQ(to_nfc("\u1112\u1161\u11AB"), "\uD55C");
  EXPECT_EQ(to_nfc("\uD558\u11AB"), "\uD55C");
  EXPECT_EQ(to_nfc("\uD55C\u11AB"), "\uD55C\u11AB");  // has its last consonant already
}

TEST(Nfc, LeavesOtherTextsAlone) {
  for (const char* text : {"", "plain", "\u00E9t\u00E9", "\U0001F600 \u4F60\u597D", "\u0301start"}) {
    EXPECT_EQ(to_nfc(text), text);
  }
}

TEST(Nfd, TakesLettersApart) {
  EXPECT_EQ(normalize("\u00E9\u1E69", NormalForm::kNfd), "e\u0301s\u0323\u0307");
  EXPECT_EQ(normalize("\uD55C", NormalForm::kNfd), "\u1112\u1161\u11AB");
  EXPECT_EQ(normalize("\uFB01", NormalForm::kNfd), "\uFB01");
}

TEST(Nfk, ReplacesCompatibilityCharacters) {
  EXPECT_EQ(normalize("\uFB01\u00BD\u3392\uFF21\u00A0x", NormalForm::kNfkc), "fi1\u20442MHzA x");
  EXPECT_EQ(normalize("\u1E9B\u0323", NormalForm::kNfkc), "\u1E69");
  EXPECT_EQ(normalize("\u1E9B\u0323", NormalForm::kNfkd), "s\u0323\u0307");
}

}  // namespace
}  // namespace shoal::tokenizer
