#include "kv/prefix_tree.h"

#include <gtest/gtest.h>

#include <vector>

namespace shoal::kv {
namespace {

std::vector<TokenId> page_of(TokenId token) { return std::vector<TokenId>(kPageTokens, token); }

std::vector<TokenId> pages_of(std::initializer_list<TokenId> tokens) {
  std::vector<TokenId> all;
  for (const TokenId token : tokens) all.insert(all.end(), kPageTokens, token);
  return all;
}

struct Fixture {
  explicit Fixture(std::vector<std::int32_t> windows, std::int32_t capacity = 16) {
    for (std::size_t g = 0; g < windows.size(); ++g) {
      groups.push_back({KvGroupId(static_cast<std::int32_t>(g)), {}, 1, 2, windows[g]});
      pools.emplace_back(static_cast<std::int32_t>(g), capacity);
    }
    tree.emplace(groups, pools);
  }

  // Adds the path as a sequence would and leaves it unlocked.
  void add(const PrefixKey& key, std::initializer_list<TokenId> path) {
    PrefixTree::Node* node = tree->lock_root(key);
    for (const TokenId token : path) {
      std::vector<PageId> pages;
      for (PagePool& pool : pools) pages.push_back(pool.take(1)->front());
      node = tree->descend(node, page_of(token), pages);
      for (std::size_t g = 0; g < pools.size(); ++g) pools[g].release(pages[g]);
    }
    tree->unlock(node);
  }

  std::int32_t matched(std::initializer_list<TokenId> path, const PrefixKey& key = {}) {
    return tree->match(key, pages_of(path), static_cast<std::int32_t>(path.size())).pages;
  }

  std::vector<KvGroup> groups;
  std::vector<PagePool> pools;
  std::optional<PrefixTree> tree;
};

TEST(PrefixTree, MatchesTheLongestCommonRunOfWholePages) {
  Fixture f({0});
  f.add({}, {1, 2, 3});
  EXPECT_EQ(f.matched({1, 2, 3, 4}), 3);
  EXPECT_EQ(f.matched({1, 2, 9}), 2);
  EXPECT_EQ(f.matched({2, 3}), 0);
  auto tokens = pages_of({1, 2});
  tokens.back() = 7;
  EXPECT_EQ(f.tree->match({}, tokens, 2).pages, 1);
  EXPECT_EQ(f.tree->match({}, tokens, 0).pages, 0);
}

TEST(PrefixTree, SharesNothingBetweenKeys) {
  Fixture f({0});
  f.add({"model", "", "a"}, {1});
  EXPECT_EQ(f.matched({1}, {"model", "", "a"}), 1);
  EXPECT_EQ(f.matched({1}, {"model", "", "b"}), 0);
  // The same letters in another field are another key.
  EXPECT_EQ(f.matched({1}, {"model", "a", ""}), 0);
  EXPECT_EQ(f.matched({1}, {"other", "", "a"}), 0);
}

TEST(PrefixTree, KeepsOnePathForEqualPrompts) {
  Fixture f({0});
  f.add({}, {1, 2});
  f.add({}, {1, 2});
  EXPECT_EQ(f.tree->nodes(), 2U);
  // The second sequence's own pages are free again: the tree did not need them.
  EXPECT_EQ(f.pools[0].cached(), 2);
  EXPECT_EQ(f.pools[0].free(), 14);
}

TEST(PrefixTree, EvictsTheLeastRecentlyUsedLeafFirst) {
  Fixture f({0});
  f.add({}, {1, 2});
  f.add({}, {1, 3});
  f.tree->unlock(f.tree->lock(f.tree->match({}, pages_of({1, 2}), 2).node));
  ASSERT_TRUE(f.tree->evict_leaf());
  EXPECT_EQ(f.matched({1, 3}), 1);
  EXPECT_EQ(f.matched({1, 2}), 2);
  ASSERT_TRUE(f.tree->evict_leaf());
  EXPECT_EQ(f.matched({1, 2}), 1);
  ASSERT_TRUE(f.tree->evict_leaf());
  EXPECT_FALSE(f.tree->evict_leaf());
  EXPECT_EQ(f.pools[0].free(), 16);
  EXPECT_EQ(f.tree->nodes(), 0U);
}

TEST(PrefixTree, AParentIsNoYoungerForLosingItsChild) {
  Fixture f({0});
  f.add({}, {1, 2});
  f.add({}, {5});
  ASSERT_TRUE(f.tree->evict_leaf());  // 2
  ASSERT_TRUE(f.tree->evict_leaf());  // 1, not 5, which was used later
  EXPECT_EQ(f.matched({1}), 0);
  EXPECT_EQ(f.matched({5}), 1);
}

TEST(PrefixTree, DoesNotEvictALockedPath) {
  Fixture f({0});
  f.add({}, {1, 2, 3});
  PrefixTree::Node* locked = f.tree->lock(f.tree->match({}, pages_of({1, 2}), 2).node);
  EXPECT_EQ(f.tree->evictable(0), 1);
  f.tree->evict_all();
  EXPECT_EQ(f.matched({1, 2, 3}), 2);
  f.tree->unlock(locked);
  EXPECT_EQ(f.tree->evictable(0), 2);
  f.tree->evict_all();
  EXPECT_EQ(f.matched({1}), 0);
}

TEST(PrefixTree, AWindowGroupNeedsOnlyThePagesThatTheNextQuerySees) {
  Fixture f({0, 2 * kPageTokens});
  f.add({}, {1, 2, 3, 4, 5});
  ASSERT_TRUE(f.tree->evict_window_page(1));  // of the oldest node, page 0
  EXPECT_EQ(f.matched({1, 2, 3, 4, 5}), 5);
  // A query at position 32 sees page 0 and one at 64 too (window 64: positions 1..64); at 96 it does not.
  EXPECT_EQ(f.matched({1}), 0);
  EXPECT_EQ(f.matched({1, 2}), 0);
  EXPECT_EQ(f.matched({1, 2, 3}), 3);
}

TEST(PrefixTree, ANewcomerFillsTheMissingWindowPages) {
  Fixture f({0, kPageTokens});
  f.add({}, {1, 2});
  ASSERT_TRUE(f.tree->evict_window_page(1));
  ASSERT_TRUE(f.tree->evict_window_page(1));
  EXPECT_EQ(f.matched({1, 2}), 0);
  f.add({}, {1, 2});
  EXPECT_EQ(f.matched({1, 2}), 2);
  EXPECT_EQ(f.pools[1].cached(), 2);
}

TEST(PrefixTree, DoesNotGiveUpAWindowPageThatIsHeld) {
  Fixture f({kPageTokens});
  f.add({}, {1});
  const auto match = f.tree->match({}, pages_of({1}), 1);
  const PageId page = PrefixTree::page(match.node, 0);
  f.tree->lock(match.node);
  ASSERT_TRUE(f.pools[0].retain(page));
  EXPECT_FALSE(f.tree->evict_window_page(0));
  ASSERT_TRUE(f.pools[0].release(page));
  EXPECT_TRUE(f.tree->evict_window_page(0));
  f.tree->unlock(match.node);
}

}  // namespace
}  // namespace shoal::kv
