#include "layout/stages.h"

#include <gtest/gtest.h>

#include <numeric>

namespace shoal {
namespace {

using Split = std::vector<std::int32_t>;

Split even_layers(std::int32_t layers, std::int32_t stages, double head) {
  return *balanced_stages(std::vector<double>(static_cast<std::size_t>(layers), 1), head, stages);
}

TEST(Stages, AreEvenWithoutAHead) {
  EXPECT_EQ(even_layers(30, 3, 0), (Split{10, 10, 10}));
  EXPECT_EQ(even_layers(7, 1, 4), (Split{7}));
}

TEST(Stages, TheHeadWeighsOnTheLast) {
  EXPECT_EQ(even_layers(16, 2, 4.3), (Split{10, 6}));
  EXPECT_EQ(even_layers(5, 2, 100), (Split{4, 1}));
}

// The first layers cost three times the others: the border moves.
TEST(Stages, ExpensiveLayersMakeShortStages) {
  const std::vector<double> costs = {3, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(*balanced_stages(costs, 0, 2), (Split{3, 9}));
  EXPECT_EQ(*balanced_stages(costs, 0, 3), (Split{2, 4, 6}));
  EXPECT_EQ(stage_costs(costs, 2, {3, 9}), (std::vector<double>{9, 11}));
}

TEST(Stages, BalancesHaveNames) {
  for (const char* name : {"prefill", "decode", "mix"})
    EXPECT_EQ(balance_name(*balance_from_name(name)), name);
  EXPECT_FALSE(balance_from_name("both"));
}

TEST(Stages, EveryStageHasALayerAndAllLayersAreDealt) {
  for (std::int32_t layers = 1; layers < 40; ++layers) {
    for (std::int32_t stages = 1; stages <= layers && stages < 9; ++stages) {
      for (const double head : {0.0, 0.5, 3.0, 50.0}) {
        const auto dealt = even_layers(layers, stages, head);
        ASSERT_EQ(dealt.size(), static_cast<std::size_t>(stages));
        EXPECT_EQ(std::accumulate(dealt.begin(), dealt.end(), 0), layers);
        for (const std::int32_t n : dealt) EXPECT_GE(n, 1);
      }
    }
  }
}

TEST(Stages, MoreStagesThanLayersAreRefusedWithTheNearest) {
  const auto refused = balanced_stages(std::vector<double>(3, 1), 0, 5);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message(),
            "pp 5: the model has 3 layers, and every stage needs one; the nearest degree is pp 3");
}

TEST(Stages, RangesFollowEachOther) {
  EXPECT_EQ(layers_of_stage({10, 6}, 0).end, 10);
  EXPECT_EQ(layers_of_stage({10, 6}, 1).begin, 10);
  EXPECT_EQ(layers_of_stage({10, 6}, 1).end, 16);
}

}  // namespace
}  // namespace shoal
