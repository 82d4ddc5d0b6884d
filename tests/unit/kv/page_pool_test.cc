#include "kv/page_pool.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace shoal::kv {
namespace {

void expect_balance(const PagePool& pool) {
  ASSERT_EQ(pool.free() + pool.cached() + pool.held() + pool.fenced(), pool.capacity());
}

TEST(PagePool, RefusesPartialGrant) {
  PagePool pool(0, 4);
  ASSERT_TRUE(pool.take(3).ok());
  const auto refused = pool.take(2);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kExhausted);
  EXPECT_EQ(refused.error().message(), "2 KV pages are needed and 1 of 4 are free (0 fenced)");
  EXPECT_EQ(pool.free(), 1);
}

TEST(PagePool, RefusesAnIdWhoseGenerationIsOver) {
  PagePool pool(0, 1);
  const PageId first = pool.take(1)->front();
  ASSERT_TRUE(pool.release(first));
  const PageId second = pool.take(1)->front();
  EXPECT_EQ(second.slot, first.slot);
  EXPECT_GT(second.generation, first.generation);
  EXPECT_FALSE(pool.retain(first));
  EXPECT_FALSE(pool.release(first));
  EXPECT_FALSE(pool.keep(first));
  EXPECT_EQ(pool.held(), 1);
}

TEST(PagePool, RefusesIdsOfOtherPoolsAndSlotsOutside) {
  PagePool pool(1, 2);
  const PageId page = pool.take(1)->front();
  EXPECT_FALSE(pool.release({0, page.slot, page.generation}));
  EXPECT_FALSE(pool.release({1, 2, 1}));
  EXPECT_FALSE(pool.release({1, -1, 1}));
  EXPECT_TRUE(pool.release(page));
}

TEST(PagePool, FreesAtTheLastRelease) {
  PagePool pool(0, 2);
  const PageId page = pool.take(1)->front();
  ASSERT_TRUE(pool.retain(page));
  ASSERT_TRUE(pool.release(page));
  EXPECT_EQ(pool.state(page.slot), PageState::kHeld);
  ASSERT_TRUE(pool.release(page));
  EXPECT_EQ(pool.state(page.slot), PageState::kFree);
}

TEST(PagePool, KeepsCachedPagesUntilForgotten) {
  PagePool pool(0, 1);
  const PageId page = pool.take(1)->front();
  ASSERT_TRUE(pool.keep(page));
  ASSERT_TRUE(pool.release(page));
  EXPECT_EQ(pool.cached(), 1);
  EXPECT_FALSE(pool.take(1).ok());
  ASSERT_TRUE(pool.retain(page));
  EXPECT_EQ(pool.held(), 1);
  ASSERT_TRUE(pool.release(page));
  ASSERT_TRUE(pool.forget(page));
  EXPECT_EQ(pool.free(), 1);
}

TEST(PagePool, DoesNotGiveOutAFencedPage) {
  PagePool pool(0, 1);
  const PageId page = pool.take(1)->front();
  ASSERT_TRUE(pool.fence(page));
  ASSERT_TRUE(pool.release(page));
  EXPECT_EQ(pool.fenced(), 1);
  EXPECT_FALSE(pool.take(1).ok());
  ASSERT_TRUE(pool.unfence(page));
  EXPECT_EQ(pool.free(), 1);
}

TEST(PagePool, PrefersTheSlotsAfterTheLastPage) {
  PagePool pool(0, 16);
  const PageId page = pool.take(4)->back();
  ASSERT_EQ(page.slot, 3);
  const auto other = pool.take(1, 7);
  EXPECT_EQ(other->front().slot, 8);
  const auto more = pool.take(3, page.slot);
  EXPECT_EQ(more->front().slot, 4);
  EXPECT_EQ(more->back().slot, 6);
}

TEST(PagePool, FindsARunAcrossWords) {
  PagePool pool(0, 200);
  const auto all = pool.take(200);
  for (const PageId& page : *all) {
    const bool single = page.slot % 10 == 0;
    const bool run = page.slot >= 55 && page.slot < 135;  // over the words' borders at 64 and 128
    if (single || run) {
      ASSERT_TRUE(pool.release(page));
    }
  }
  const auto taken = pool.take(80);
  ASSERT_TRUE(taken.ok());
  for (std::size_t i = 0; i < taken->size(); ++i)
    EXPECT_EQ((*taken)[i].slot, 55 + static_cast<std::int32_t>(i));
}

TEST(PagePool, TakesScatteredSlotsWhereNoRunIsLongEnough) {
  PagePool pool(0, 10);
  const auto all = pool.take(10);
  for (const PageId& page : *all) {
    if (page.slot % 2 == 0) {
      ASSERT_TRUE(pool.release(page));
    }
  }
  const auto taken = pool.take(5);
  ASSERT_TRUE(taken.ok());
  for (const PageId& page : *taken) EXPECT_EQ(page.slot % 2, 0);
  EXPECT_EQ(pool.free(), 0);
}

// Random operations against a map that counts holders itself.
TEST(PagePool, MatchesAPlainModelUnderRandomOperations) {
  struct Model {
    int holders = 0;
    bool kept = false;
    bool fenced = false;
  };
  std::mt19937 random(7);
  PagePool pool(3, 70);
  std::map<std::int32_t, std::pair<PageId, Model>> live;
  std::vector<std::uint32_t> generations(70, 0);
  for (int step = 0; step < 20000; ++step) {
    const auto pick = [&] {
      auto it = live.begin();
      std::advance(it, random() % live.size());
      return it;
    };
    const auto settle = [&](auto it) {
      const Model& m = it->second.second;
      if (m.holders == 0 && !m.kept && !m.fenced) live.erase(it);
    };
    const unsigned op = random() % 7;
    if (op == 0 || live.empty()) {
      const auto n = static_cast<std::int32_t>(random() % 9);
      auto taken = pool.take(n, static_cast<std::int32_t>(random() % 71) - 1);
      ASSERT_EQ(taken.ok(), n <= 70 - static_cast<std::int32_t>(live.size()));
      if (!taken.ok()) continue;
      for (const PageId& page : *taken) {
        ASSERT_FALSE(live.contains(page.slot)) << "given out twice";
        ASSERT_GT(page.generation, generations[static_cast<std::size_t>(page.slot)]);
        generations[static_cast<std::size_t>(page.slot)] = page.generation;
        live[page.slot] = {page, {1, false, false}};
      }
    } else {
      auto it = pick();
      auto& [page, m] = it->second;
      switch (op) {
        case 1:
          ASSERT_TRUE(pool.retain(page));
          ++m.holders;
          break;
        case 2:
        case 3:
          ASSERT_EQ(pool.release(page), m.holders > 0);
          m.holders -= m.holders > 0;
          break;
        case 4:
          ASSERT_TRUE(pool.keep(page));
          m.kept = true;
          break;
        case 5:
          ASSERT_TRUE(pool.forget(page));
          m.kept = false;
          break;
        default:
          m.fenced = !m.fenced;
          ASSERT_TRUE(m.fenced ? pool.fence(page) : pool.unfence(page));
      }
      settle(it);
    }
    expect_balance(pool);
    int held = 0, cached = 0, fenced = 0;
    for (const auto& [slot, entry] : live) {
      const Model& m = entry.second;
      held += m.holders > 0;
      fenced += m.holders == 0 && m.fenced;
      cached += m.holders == 0 && !m.fenced && m.kept;
    }
    ASSERT_EQ(pool.held(), held);
    ASSERT_EQ(pool.cached(), cached);
    ASSERT_EQ(pool.fenced(), fenced);
  }
}

}  // namespace
}  // namespace shoal::kv
