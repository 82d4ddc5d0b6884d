#include "tokenizer/merge_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace shoal::tokenizer {
namespace {

using Rules = std::map<std::pair<TokenId, TokenId>, std::pair<std::int32_t, TokenId>>;

// The definition: find the best pair in the whole word, merge it, start again.
std::vector<TokenId> merge_plainly(std::vector<TokenId> symbols, const Rules& rules) {
  for (;;) {
    std::size_t best = symbols.size();
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto at = rules.find({symbols[i], symbols[i + 1]});
      if (at == rules.end()) continue;
      if (best == symbols.size() || at->second.first < rules.at({symbols[best], symbols[best + 1]}).first)
        best = i;
    }
    if (best == symbols.size()) return symbols;
    symbols[best] = rules.at({symbols[best], symbols[best + 1]}).second;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(MergeTable, MergesWordsOfAnyLengthAsTheDefinitionDoes) {
  std::mt19937 random(3);
  for (int run = 0; run < 60; ++run) {
    // Symbols 0 to 3; every merge makes a new one, of any two that exist.
    Rules rules;
    MergeTable table;
    TokenId next = 4;
    for (std::int32_t rank = 0; rank < 40; ++rank) {
      const auto any = [&] { return static_cast<TokenId>(random() % static_cast<unsigned>(next)); };
      const std::pair pair(any(), any());
      if (!rules.emplace(pair, std::pair(rank, next)).second) continue;
      table.add(pair.first, pair.second, rank, next++);
    }
    ASSERT_EQ(table.size(), rules.size());
    for (const std::size_t length : {0, 1, 2, 5, 31, 32, 33, 34, 100, 300}) {
      std::vector<TokenId> word(length);
      for (TokenId& symbol : word) symbol = static_cast<TokenId>(random() % 4);
      const std::vector<TokenId> expected = merge_plainly(word, rules);
      table.merge(word);
      ASSERT_EQ(word, expected) << "length " << length;
    }
  }
}

TEST(MergeTable, KeepsTheFirstRankOfAPair) {
  MergeTable table;
  table.add(1, 2, 0, 10);
  table.add(1, 2, 5, 11);
  std::vector<TokenId> word = {1, 2};
  table.merge(word);
  EXPECT_EQ(word, std::vector<TokenId>{10});
}

TEST(MergeTable, LeavesSymbolsWithoutATokenAlone) {
  MergeTable table;
  table.add(1, 1, 0, 2);
  std::vector<TokenId> word = {1, kNoToken, kNoToken, 1, 1};
  table.merge(word);
  EXPECT_EQ(word, (std::vector<TokenId>{1, kNoToken, kNoToken, 2}));
}

}  // namespace
}  // namespace shoal::tokenizer
