#include "engine/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

namespace shoal::engine {
namespace {

// Pushes the text in pieces that end at the given places; returns what came out, and the match.
struct Outcome {
  std::string text;
  std::string stop;
  bool operator==(const Outcome&) const = default;
};

Outcome run(const std::vector<std::string>& stops, const std::string& text, std::uint64_t borders) {
  StopMatcher matcher(stops);
  Outcome outcome;
  std::string piece;
  for (std::size_t i = 0; i < text.size(); ++i) {
    piece += text[i];
    if ((borders >> (i % 64) & 1) == 0 && i + 1 < text.size()) continue;
    if (const auto index = matcher.push(piece, outcome.text)) {
      outcome.stop = matcher.stop(*index);
      return outcome;
    }
    piece.clear();
  }
  matcher.finish(outcome.text);
  return outcome;
}

TEST(StopMatcher, HoldsBackWhatMayBecomeAStop) {
  StopMatcher matcher({"END"});
  std::string out;
  EXPECT_FALSE(matcher.push("the E", out));
  EXPECT_EQ(out, "the ");
  EXPECT_FALSE(matcher.push("N", out));
  EXPECT_EQ(out, "the ");
  EXPECT_FALSE(matcher.push("E", out));
  EXPECT_EQ(out, "the EN");
  EXPECT_TRUE(matcher.push("ND and more", out));
  EXPECT_EQ(out, "the EN");
}

TEST(StopMatcher, SendsWhatWasHeldWhenTheTextIsOver) {
  StopMatcher matcher({"END"});
  std::string out;
  EXPECT_FALSE(matcher.push("xEN", out));
  matcher.finish(out);
  EXPECT_EQ(out, "xEN");
}

TEST(StopMatcher, ARestartInsideAPartialMatchIsFound) {
  EXPECT_EQ(run({"aab"}, "aaab", ~0ULL), (Outcome{"a", "aab"}));
  EXPECT_EQ(run({"abab"}, "abaabab", ~0ULL), (Outcome{"aba", "abab"}));
}

TEST(StopMatcher, TheMatchThatEndsFirstCountsThenTheLongest) {
  EXPECT_EQ(run({"abcd", "bc"}, "abcd", 0), (Outcome{"a", "bc"}));
  EXPECT_EQ(run({"bc", "abc"}, "abc", 0), (Outcome{"", "abc"}));
}

TEST(StopMatcher, PassesEverythingWithoutStops) {
  EXPECT_EQ(run({}, "anything", 5), (Outcome{"anything", ""}));
  EXPECT_EQ(run({""}, "anything", 5), (Outcome{"anything", ""}));
}

TEST(StopMatcher, TheOutcomeDoesNotDependOnThePiecesBorders) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops;
    for (unsigned i = 0; i < 1 + random() % 3; ++i) {
      std::string stop;
      for (unsigned j = 0; j < 1 + random() % 5; ++j) stop += static_cast<char>('a' + random() % 2);
      stops.push_back(stop);
    }
    std::string text;
    for (unsigned j = 0; j < random() % 20; ++j) text += static_cast<char>('a' + random() % 3);
    const Outcome by_character = run(stops, text, ~0ULL);
    for (int cut = 0; cut < 5; ++cut) ASSERT_EQ(run(stops, text, random()), by_character) << text;
    // And it is what searching the whole text gives.
    std::size_t end = std::string::npos;
    for (std::size_t length = 1; length <= text.size() && end == std::string::npos; ++length) {
      for (const std::string& stop : stops) {
        if (std::string_view(text).substr(0, length).ends_with(stop)) end = length;
      }
    }
    if (end == std::string::npos) {
      ASSERT_EQ(by_character, (Outcome{text, ""}));
    } else {
      ASSERT_EQ(by_character.text + by_character.stop, text.substr(0, end));
    }
  }
}

}  // namespace
}  // namespace shoal::engine
