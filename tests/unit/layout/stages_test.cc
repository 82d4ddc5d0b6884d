#include "layout/stages.h"

#include <gtest/gtest.h>

#include <numeric>

namespace shoal {
namespace {

TEST(Stages, AreEvenWithoutAHead) {
  EXPECT_EQ(*balanced_stages(30, 3, 0), (std::vector<std::int32_t>{10, 10, 10}));
  EXPECT_EQ(*balanced_stages(7, 1, 4), (std::vector<std::int32_t>{7}));
}

TEST(Stages, TheHeadWeighsOnTheLast) {
  EXPECT_EQ(*balanced_stages(16, 2, 4), (std::vector<std::int32_t>{10, 6}));
  EXPECT_EQ(*balanced_stages(5, 2, 100), (std::vector<std::int32_t>{4, 1}));
}

TEST(Stages, EveryStageHasALayerAndAllLayersAreDealt) {
  for (std::int32_t layers = 1; layers < 40; ++layers) {
    for (std::int32_t stages = 1; stages <= layers && stages < 9; ++stages) {
      for (const double head : {0.0, 0.5, 3.0, 50.0}) {
        const auto dealt = *balanced_stages(layers, stages, head);
        ASSERT_EQ(dealt.size(), static_cast<std::size_t>(stages));
        EXPECT_EQ(std::accumulate(dealt.begin(), dealt.end(), 0), layers);
        for (const std::int32_t n : dealt) EXPECT_GE(n, 1);
      }
    }
  }
}

TEST(Stages, MoreStagesThanLayersAreRefusedWithTheNearest) {
  const auto refused = balanced_stages(3, 5, 0);
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
