// Each normalizer and pre-tokenizer of a tokenizer.json beside what the reference library makes of the same
// texts (hf_parts.jsonl, written by tests/oracle/make_tokenizer_parts.py).

#include <gtest/gtest.h>
#include <simdjson.h>

#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "material.h"
#include "tokenizer/hf_normalizer.h"
#include "tokenizer/hf_pretokenizer.h"

namespace shoal::tokenizer {
namespace {

std::string text_of(JsonElement element) { return std::string(std::string_view(element)); }

void expect_normalizer(JsonElement part, simdjson::dom::array cases) {
  const auto normalizer = HfNormalizer::parse(part, "here");
  ASSERT_TRUE(normalizer.ok()) << normalizer.error().message();
  for (const JsonElement one : cases) {
    const auto got = normalizer->apply(text_of(one.at(0)));
    ASSERT_TRUE(got.ok()) << got.error().message();
    EXPECT_EQ(*got, text_of(one.at(1))) << part << " of " << one.at(0);
  }
}

void expect_pretokenizer(JsonElement part, simdjson::dom::array cases) {
  const auto pretokenizer = HfPretokenizer::parse(part, "here");
  ASSERT_TRUE(pretokenizer.ok()) << pretokenizer.error().message();
  for (const JsonElement one : cases) {
    const std::string text = text_of(one.at(0));
    const auto got = pretokenizer->split(text, true);
    ASSERT_TRUE(got.ok()) << got.error().message();
    std::vector<std::string> words, wanted;
    for (const std::string_view word : got->views) words.emplace_back(word);
    for (const JsonElement word : one.at(1)) wanted.push_back(text_of(word));
    EXPECT_EQ(words, wanted) << part << " of " << one.at(0);
  }
}

TEST(HfParts, GiveTheReferencesResults) {
  std::ifstream file(testing_material::source_tree() / "tests/unit/tokenizer/hf_parts.jsonl");
  ASSERT_TRUE(file);
  int records = 0;
  simdjson::dom::parser parser;
  for (std::string line; std::getline(file, line); ++records) {
    JsonElement record = parser.parse(line);
    JsonElement part;
    const simdjson::dom::array cases = record["cases"];
    if (!record["normalizer"].get(part)) {
      expect_normalizer(part, cases);
    } else {
      expect_pretokenizer(record["pre_tokenizer"], cases);
    }
  }
  EXPECT_GT(records, 40);
}

TEST(HfParts, RefusesABrokenCharsmap) {
  simdjson::dom::parser parser;
  for (const char* json : {R"({"type":"Precompiled","precompiled_charsmap":"!"})",
                           R"({"type":"Precompiled","precompiled_charsmap":"AAAA"})",
                           R"({"type":"Precompiled","precompiled_charsmap":"////fw=="})"}) {
    const JsonElement part = parser.parse(std::string(json));
    const auto normalizer = HfNormalizer::parse(part, "here");
    ASSERT_FALSE(normalizer.ok()) << json;
    EXPECT_EQ(normalizer.error().code(), ErrorCode::kCorrupt);
    EXPECT_NE(normalizer.error().message().find("precompiled_charsmap"), std::string::npos);
  }
}

TEST(HfParts, NamesWhatIsNotKnown) {
  simdjson::dom::parser parser;
  JsonElement part = parser.parse(std::string(R"({"type":"Transliterate"})"));
  const auto normalizer = HfNormalizer::parse(part, "here");
  ASSERT_FALSE(normalizer.ok());
  EXPECT_NE(normalizer.error().message().find("'Transliterate' is not supported; known: "),
            std::string::npos);
  part = parser.parse(std::string(R"({"type":"UnicodeScripts"})"));
  const auto pretokenizer = HfPretokenizer::parse(part, "here");
  ASSERT_FALSE(pretokenizer.ok());
  EXPECT_EQ(pretokenizer.error().code(), ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace shoal::tokenizer
