#include "kv/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "kv/kv_store.h"

namespace shoal::kv {
namespace {

std::vector<KvGroup> groups_with(std::vector<std::int32_t> windows) {
  std::vector<KvGroup> groups;
  for (std::size_t g = 0; g < windows.size(); ++g)
    groups.push_back(
        {KvGroupId(static_cast<std::int32_t>(g)), {static_cast<std::int32_t>(g)}, 1, 2, windows[g]});
  return groups;
}

TEST(KvCache, GrowsAllGroupsOrNone) {
  const std::int32_t capacities[] = {4, 2};
  KvCache cache(groups_with({0, 0}), capacities);
  SequencePages sequence;
  std::vector<NewPage> taken;
  const std::vector<TokenId> tokens(96, 1);
  cache.open(sequence, {}, tokens, 2, taken);
  EXPECT_FALSE(cache.grow(sequence, 65, taken).ok());
  EXPECT_TRUE(taken.empty());
  EXPECT_EQ(cache.reach(sequence), 64);
  EXPECT_TRUE(cache.grow(sequence, 64, taken).ok());
  EXPECT_EQ(taken.size(), 4U);
  cache.release(sequence);
  EXPECT_EQ(cache.counts(0).free, 4);
  EXPECT_EQ(cache.counts(1).free, 2);
}

TEST(KvCache, EvictsForAGrowingSequence) {
  const std::int32_t capacities[] = {4};
  KvCache cache(groups_with({0}), capacities);
  std::vector<NewPage> taken;
  SequencePages first;
  const std::vector<TokenId> tokens(128, 1);
  cache.open(first, {}, tokens, 3, taken);
  ASSERT_TRUE(cache.grow(first, 128, taken).ok());
  cache.insert(first, tokens);
  cache.release(first);
  EXPECT_EQ(cache.counts(0).cached, 4);
  SequencePages second;
  const std::vector<TokenId> others(96, 2);
  EXPECT_EQ(cache.open(second, {}, others, 2, taken), 0);
  ASSERT_TRUE(cache.grow(second, 96, taken).ok());
  EXPECT_EQ(cache.counts(0).cached, 1);
  EXPECT_EQ(cache.counts(0).held, 3);
  cache.release(second);
  cache.flush();
  EXPECT_EQ(cache.counts(0).free, 4);
}

TEST(KvStore, GivesOneViewPerGroup) {
  KvLayout small{1, 2, 4, 3, KvDType::kF32};
  KvLayout large{2, 1, 8, 5, KvDType::kBf16};
  const KvLayout layouts[] = {small, large};
  auto store = KvStore::make(layouts);
  ASSERT_TRUE(store.ok());
  ASSERT_EQ(store->views().size(), 2U);
  EXPECT_EQ(store->bytes(), small.pool_bytes() + large.pool_bytes());
  // The last byte of the last tile is inside.
  float* v = store->views()[0].v<float>(0, 1, 2);
  v[small.tile_bytes() / sizeof(float) - 1] = 1;
  EXPECT_NE(store->views()[0].base, store->views()[1].base);
}

// Sequences over a small alphabet open, grow, "compute", insert, slide and go, in random order. Each slot's
// content is the whole prefix (key and tokens) it was computed from: whatever a sequence is given must have
// been computed from exactly its own tokens.
class KvCacheProperty : public testing::TestWithParam<std::vector<std::int32_t>> {};

struct Driver {
  struct Sequence {
    SequencePages pages;
    PrefixKey key;
    std::vector<TokenId> tokens;
    std::int64_t computed = 0;
  };

  explicit Driver(const std::vector<std::int32_t>& windows, std::int32_t capacity)
      : cache(groups_with(windows), std::vector<std::int32_t>(windows.size(), capacity)),
        contents(windows.size()) {}

  std::string prefix_of(const Sequence& s, std::int64_t tokens) const {
    std::string text = s.key.salt + ":";
    for (std::int64_t i = 0; i < tokens; ++i)
      text += static_cast<char>('a' + s.tokens[static_cast<std::size_t>(i)]);
    return text;
  }

  void open(std::mt19937& random) {
    auto s = std::make_unique<Sequence>();
    s->key.salt = random() % 4 == 0 ? "x" : "";
    // Whole pages of one letter make prefixes meet often; odd tails make them part anywhere.
    const std::size_t length = 1 + random() % 300;
    while (s->tokens.size() < length) {
      const auto letter = static_cast<TokenId>(random() % 2);
      for (std::size_t i = 0; i < kPageTokens && s->tokens.size() < length; ++i)
        s->tokens.push_back(random() % 500 == 0 ? 5 : letter);
    }
    const auto most = static_cast<std::int32_t>((s->tokens.size() - 1) / kPageTokens);
    const auto peek = cache.peek(s->key, s->tokens, most);
    std::vector<NewPage> taken;
    const std::int32_t matched = cache.open(s->pages, s->key, s->tokens, most, taken);
    ASSERT_EQ(peek.pages, matched);
    s->computed = std::int64_t{matched} * kPageTokens;
    for (const NewPage& page : taken) {
      ASSERT_EQ(contents[static_cast<std::size_t>(page.group)][page.page.slot],
                prefix_of(*s, (std::int64_t{page.logical} + 1) * kPageTokens))
          << "a cached page of other tokens";
    }
    // Everything the next query sees is there.
    for (std::int32_t g = 0; g < cache.groups(); ++g) {
      const PageTable& table = s->pages.tables[static_cast<std::size_t>(g)];
      ASSERT_EQ(table.size(), matched);
      ASSERT_LE(table.first_kept(), first_visible_page(s->computed, cache.group(g).window));
    }
    sequences.push_back(std::move(s));
  }

  void advance(Sequence& s, std::mt19937& random) {
    if (s.computed == static_cast<std::int64_t>(s.tokens.size())) {
      if (s.tokens.size() > 400) return;
      s.tokens.push_back(static_cast<TokenId>(random() % 2));
    }
    std::int64_t end = std::min<std::int64_t>(static_cast<std::int64_t>(s.tokens.size()),
                                              s.computed + 1 + static_cast<std::int64_t>(random() % 70));
    const std::int64_t reach = cache.reach(s.pages);
    std::vector<NewPage> taken;
    const bool fits = cache.grow(s.pages, end, taken).ok();
    ASSERT_EQ(fits, end <= reach);
    if (!fits) {
      ASSERT_TRUE(taken.empty());
      if (reach <= s.computed) return;
      end = reach;
      ASSERT_TRUE(cache.grow(s.pages, end, taken).ok());
    }
    s.computed = end;
    for (std::int32_t g = 0; g < cache.groups(); ++g) {
      const PageTable& table = s.pages.tables[static_cast<std::size_t>(g)];
      for (std::int32_t logical = table.first_kept(); logical < table.size(); ++logical) {
        const std::int64_t page_end = std::min(s.computed, (std::int64_t{logical} + 1) * kPageTokens);
        std::string& content = contents[static_cast<std::size_t>(g)][table.page(logical).slot];
        const std::string now = prefix_of(s, page_end);
        // A full page that is already right may be shared: it must not be touched.
        if (content != now) content = now;
      }
    }
    cache.insert(s.pages, std::span(s.tokens).first(static_cast<std::size_t>(s.computed)));
    cache.release_behind(s.pages, s.computed, [&](std::int32_t g, std::int32_t first) {
      EXPECT_GT(cache.group(g).window, 0);
      EXPECT_LE(first, first_visible_page(s.computed, cache.group(g).window));
    });
  }

  void check() {
    for (std::int32_t g = 0; g < cache.groups(); ++g) {
      const PoolCounts counts = cache.counts(g);
      ASSERT_EQ(counts.free + counts.cached + counts.held + counts.fenced, counts.capacity);
      std::set<std::int32_t> held;
      for (const auto& s : sequences) {
        const PageTable& table = s->pages.tables[static_cast<std::size_t>(g)];
        for (std::int32_t logical = table.first_kept(); logical < table.size(); ++logical) {
          held.insert(table.page(logical).slot);
          const std::int64_t end = std::min(s->computed, (std::int64_t{logical} + 1) * kPageTokens);
          ASSERT_EQ(contents[static_cast<std::size_t>(g)][table.page(logical).slot], prefix_of(*s, end))
              << "a page of a living sequence was overwritten";
        }
      }
      ASSERT_EQ(counts.held, static_cast<std::int32_t>(held.size()));
      ASSERT_LE(cache.available(g), counts.free + counts.cached);
    }
  }

  KvCache cache;
  std::vector<std::map<std::int32_t, std::string>> contents;
  std::vector<std::unique_ptr<Sequence>> sequences;
};

TEST_P(KvCacheProperty, GivesOnlyPagesComputedFromTheSameTokens) {
  std::mt19937 random(11);
  Driver driver(GetParam(), 40);
  for (int step = 0; step < 6000; ++step) {
    const unsigned op = random() % 10;
    if (driver.sequences.empty() || (op == 0 && driver.sequences.size() < 8)) {
      driver.open(random);
    } else if (op == 1) {
      const std::size_t i = random() % driver.sequences.size();
      driver.cache.release(driver.sequences[i]->pages);
      driver.sequences.erase(driver.sequences.begin() + static_cast<std::ptrdiff_t>(i));
    } else if (op == 2 && step % 500 == 2) {
      driver.cache.flush();
    } else {
      driver.advance(*driver.sequences[random() % driver.sequences.size()], random);
    }
    driver.check();
    if (HasFatalFailure()) return;
  }
  for (auto& s : driver.sequences) driver.cache.release(s->pages);
  for (std::int32_t g = 0; g < driver.cache.groups(); ++g) {
    const PoolCounts counts = driver.cache.counts(g);
    EXPECT_EQ(counts.free + counts.cached, counts.capacity);
    EXPECT_EQ(driver.cache.available(g), counts.capacity);
  }
  driver.cache.flush();
  for (std::int32_t g = 0; g < driver.cache.groups(); ++g)
    EXPECT_EQ(driver.cache.counts(g).free, driver.cache.counts(g).capacity);
  EXPECT_EQ(driver.cache.tree_nodes(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Windows, KvCacheProperty,
                         testing::Values(std::vector<std::int32_t>{0}, std::vector<std::int32_t>{40},
                                         std::vector<std::int32_t>{0, 64},
                                         std::vector<std::int32_t>{1, 33, 0}));

// Pages go to the owners that are asked for while those have room, then to whoever has most.
TEST(KvCache, PagesLieWithSeveralCoordinates) {
  const std::int32_t capacities[] = {4};
  KvCache cache(groups_with({0}), capacities, 3);
  EXPECT_EQ(cache.counts(0).capacity, 12);
  SequencePages sequence;
  std::vector<NewPage> taken;
  const std::vector<TokenId> tokens(12 * 32, 1);
  cache.open(sequence, {}, tokens, 0, taken);
  EXPECT_EQ(cache.reach(sequence), 12 * 32);
  const std::int32_t owners[] = {1, 1, 2, 0};
  ASSERT_TRUE(cache.grow(sequence, 4 * 32, taken, owners).ok());
  ASSERT_EQ(taken.size(), 4U);
  for (std::size_t i = 0; i < taken.size(); ++i) EXPECT_EQ(cache.owner(taken[i].page), owners[i]);
  EXPECT_EQ(cache.counts(0, 1).held, 2);
  // Coordinate 1 has room for two more of four.
  const std::int32_t more[] = {1, 1, 1, 1};
  ASSERT_TRUE(cache.grow(sequence, 8 * 32, taken, more).ok());
  EXPECT_EQ(cache.counts(0, 1).held, 4);
  EXPECT_EQ(cache.counts(0, 0).held + cache.counts(0, 2).held, 4);
  EXPECT_FALSE(cache.grow(sequence, 13 * 32, taken, more).ok());
  ASSERT_TRUE(cache.grow(sequence, 12 * 32, taken, more).ok());
  // All of it is cached, keeps its owners, and is given up pool by pool.
  cache.insert(sequence, tokens);
  std::vector<std::int32_t> kept;
  for (const NewPage& page : taken) kept.push_back(cache.owner(page.page));
  cache.release(sequence);
  EXPECT_EQ(cache.counts(0).cached, 12);
  taken.clear();
  EXPECT_EQ(cache.open(sequence, {}, tokens, 11, taken), 11);
  for (std::size_t i = 0; i < taken.size(); ++i) EXPECT_EQ(cache.owner(taken[i].page), kept[i]);
  cache.release(sequence);
  const std::vector<TokenId> others(96, 2);
  cache.open(sequence, {}, others, 0, taken);
  const std::int32_t last[] = {2, 2, 2};
  ASSERT_TRUE(cache.grow(sequence, 96, taken, last).ok());
  EXPECT_EQ(cache.counts(0, 2).held, 3);
  cache.release(sequence);
  cache.flush();
  for (std::int32_t c = 0; c < 3; ++c) EXPECT_EQ(cache.counts(0, c).free, 4);
}

// Others' room is left alone, however much there is.
TEST(KvCache, PagesComeFromTheCoordinatesNamed) {
  const std::int32_t capacities[] = {4};
  KvCache cache(groups_with({0}), capacities, 3);
  SequencePages sequence;
  std::vector<NewPage> taken;
  cache.open(sequence, {}, std::vector<TokenId>(9 * 32, 1), 0, taken);
  CoordinateSet two = CoordinateSet::of(0);
  two.add(2);
  EXPECT_EQ(cache.reach(sequence, two), 8 * 32);
  const std::int32_t owners[] = {0, 0, 0, 0, 0, 0};
  EXPECT_FALSE(cache.grow(sequence, 5 * 32, taken, owners, CoordinateSet::of(0)).ok());
  EXPECT_TRUE(taken.empty());
  ASSERT_TRUE(cache.grow(sequence, 6 * 32, taken, owners, two).ok());
  EXPECT_EQ(cache.counts(0, 0).held, 4);
  EXPECT_EQ(cache.counts(0, 1).held, 0);
  EXPECT_EQ(cache.counts(0, 2).held, 2);
  const std::int32_t elsewhere[] = {1};
  ASSERT_TRUE(cache.grow(sequence, 7 * 32, taken, elsewhere, two).ok());
  EXPECT_EQ(cache.counts(0, 1).held, 0);
  EXPECT_EQ(cache.reach(sequence, two), 8 * 32);
  EXPECT_FALSE(cache.grow(sequence, 9 * 32, taken, elsewhere, two).ok());
  cache.release(sequence);
}

}  // namespace
}  // namespace shoal::kv
