#include "layout/reshard.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

namespace shoal {
namespace {

struct Side {
  std::vector<std::int32_t> stages;                           // layers of each
  std::vector<std::pair<std::int32_t, std::int32_t>> shards;  // KV heads of each tensor rank, half open
};

// One group that has all layers, and a second one with every other layer.
KvParts parts_of(const Side& side) {
  KvParts parts;
  std::int32_t first = 0;
  for (const std::int32_t layers : side.stages) {
    for (const auto& [begin, end] : side.shards) {
      const std::int32_t half_first = (first + 1) / 2;
      const std::int32_t half_end = (first + layers + 1) / 2;
      parts.push_back(
          {{first, layers, begin, end - begin}, {half_first, half_end - half_first, begin, end - begin}});
    }
    first += layers;
  }
  return parts;
}

bool holds(const KvPart& part, std::int32_t layer, std::int32_t head) {
  return layer >= part.first_layer && layer < part.first_layer + part.layers && head >= part.first_head &&
         head < part.first_head + part.heads;
}

// Eight layers and six heads, dealt in many ways; copies of heads where ranks share them.
const std::vector<std::pair<const char*, Side>> kSides = {
    {"tp1", {{8}, {{0, 6}}}},
    {"tp2", {{8}, {{0, 3}, {3, 6}}}},
    {"tp3", {{8}, {{0, 2}, {2, 4}, {4, 6}}}},
    {"tp4 with copies", {{8}, {{0, 2}, {1, 3}, {3, 5}, {4, 6}}}},
    {"tp12, two ranks a head",
     {{8}, {{0, 1}, {0, 1}, {1, 2}, {1, 2}, {2, 3}, {2, 3}, {3, 4}, {3, 4}, {4, 5}, {4, 5}, {5, 6}, {5, 6}}}},
    {"pp2", {{4, 4}, {{0, 6}}}},
    {"pp3 uneven", {{1, 5, 2}, {{0, 6}}}},
    {"tp2 pp2 uneven", {{3, 5}, {{0, 4}, {4, 6}}}},
    {"pp8", {{1, 1, 1, 1, 1, 1, 1, 1}, {{0, 6}}}},
};

using Cell =
    std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t>;  // target, group, layer, head

TEST(Reshard, EveryCellComesOnceFromTheLowestRankThatHoldsIt) {
  for (const auto& [from, source] : kSides) {
    for (const auto& [to, target] : kSides) {
      SCOPED_TRACE(std::string(from) + " to " + to);
      const KvParts sources = parts_of(source);
      const KvParts targets = parts_of(target);
      const auto plan = reshard(sources, targets);
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      std::map<Cell, std::int32_t> sender;
      for (const KvTransfer& each : *plan) {
        ASSERT_GT(each.part.layers, 0);
        ASSERT_GT(each.part.heads, 0);
        for (std::int32_t layer = 0; layer < each.part.layers; ++layer) {
          for (std::int32_t head = 0; head < each.part.heads; ++head) {
            const Cell cell{each.target, each.group, each.part.first_layer + layer,
                            each.part.first_head + head};
            EXPECT_TRUE(sender.emplace(cell, each.source).second) << "written twice";
          }
        }
      }
      std::size_t wanted = 0;
      for (std::size_t rank = 0; rank < targets.size(); ++rank) {
        for (std::size_t group = 0; group < 2; ++group) {
          for (std::int32_t layer = 0; layer < 8; ++layer) {
            for (std::int32_t head = 0; head < 6; ++head) {
              if (!holds(targets[rank][group], layer, head)) continue;
              ++wanted;
              std::int32_t lowest = 0;
              while (!holds(sources[static_cast<std::size_t>(lowest)][group], layer, head)) ++lowest;
              const auto it = sender.find(
                  {static_cast<std::int32_t>(rank), static_cast<std::int32_t>(group), layer, head});
              ASSERT_NE(it, sender.end());
              EXPECT_EQ(it->second, lowest);
            }
          }
        }
      }
      EXPECT_EQ(sender.size(), wanted);
    }
  }
}

TEST(Reshard, WhatCouldBeOneTransferIsOne) {
  const auto same = reshard(parts_of(kSides[0].second), parts_of(kSides[0].second));
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(*same, (std::vector<KvTransfer>{{0, 0, 0, {0, 8, 0, 6}}, {0, 0, 1, {0, 4, 0, 6}}}));
  // A rank of tp4 has copies of heads 1 and 4: the lower rank sends them, and the cut is at the copies.
  const auto merged = reshard(parts_of(kSides[3].second), parts_of(kSides[0].second));
  ASSERT_TRUE(merged.ok());
  EXPECT_EQ(merged->size(), 8U);
  EXPECT_EQ((*merged)[2], (KvTransfer{1, 0, 0, {0, 8, 2, 1}}));
}

TEST(Reshard, BytesAreTheFormulas) {
  // 32 tokens * layers * target ranks * 2 * heads * size * bytes, copies counted.
  for (const auto& [to, target] : kSides) {
    SCOPED_TRACE(to);
    const KvParts targets = parts_of(target);
    const auto plan = reshard(parts_of(kSides[7].second), targets);
    ASSERT_TRUE(plan.ok());
    std::uint64_t expected = 0;
    for (const auto& rank : targets) {
      expected += 5ULL * 32 * static_cast<std::uint64_t>(rank[0].layers * 2 * rank[0].heads * 64 * 2);
      expected += 3ULL * 32 * static_cast<std::uint64_t>(rank[1].layers * 2 * rank[1].heads * 48 * 2);
    }
    EXPECT_EQ(handover_bytes(*plan, {5, 3}, {64, 48}, 2), expected);
  }
}

TEST(Reshard, AHeadThatNobodyHoldsIsNamed) {
  const KvParts source = {{{0, 4, 0, 2}}};
  const KvParts more_layers = {{{0, 5, 0, 2}}};
  const auto plan = reshard(source, more_layers);
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.error().message().find("head 0 of layer 4"), std::string::npos) << plan.error().message();
  EXPECT_FALSE(reshard(source, {{{0, 4, 0, 2}, {0, 1, 0, 1}}}).ok());
  EXPECT_TRUE(reshard(source, {{{0, 4, 0, 0}}}).ok());
}

TEST(Reshard, NeighbouringSlotsAreOneRun) {
  EXPECT_EQ(page_runs(3, {7, 8, 9, 4, 11, 12}, 100),
            (std::vector<PageRun>{{3, 7, 3}, {6, 4, 1}, {7, 11, 2}}));
  EXPECT_EQ(page_runs(0, {0, 1, 2, 3, 4}, 2), (std::vector<PageRun>{{0, 0, 2}, {2, 2, 2}, {4, 4, 1}}));
  EXPECT_TRUE(page_runs(0, {}, 2).empty());
}

}  // namespace
}  // namespace shoal
