#include "layout/layout.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace shoal {
namespace {

constexpr Degrees kUneven{.tp = 3, .pp = 2, .cp = 2, .dp = 4, .ep = 6};

Layout uneven() { return *Layout::make(kUneven); }

TEST(Layout, SingleIsOneRankAloneInEveryGroup) {
  const Layout layout = Layout::single();
  EXPECT_EQ(layout.ranks(), 1);
  EXPECT_EQ(layout.sub_batches(), 1);
  for (const GroupKind kind :
       {GroupKind::kAttentionTensor, GroupKind::kFeedForwardTensor, GroupKind::kContext, GroupKind::kExpert,
        GroupKind::kPipeline, GroupKind::kSampling}) {
    EXPECT_TRUE(layout.group(kind, 0).alone());
    EXPECT_EQ(layout.group(kind, 0).ranks, std::vector<std::int32_t>{0});
  }
}

TEST(Layout, RanksAndCoordinatesMapOneToOne) {
  const Layout layout = uneven();
  ASSERT_EQ(layout.ranks(), 48);
  std::set<std::vector<std::int32_t>> seen;
  for (std::int32_t rank = 0; rank < layout.ranks(); ++rank) {
    const Coordinate at = layout.coordinate(rank);
    EXPECT_TRUE(at.tp < kUneven.tp && at.pp < kUneven.pp && at.cp < kUneven.cp && at.dp < kUneven.dp);
    EXPECT_EQ(layout.rank(at), rank);
    seen.insert({at.tp, at.pp, at.cp, at.dp});
  }
  EXPECT_EQ(seen.size(), 48U);
}

TEST(Layout, TensorNeighboursAreClosestAndStagesFarthest) {
  const Layout layout = uneven();
  EXPECT_EQ(layout.rank({.tp = 1}), 1);
  EXPECT_EQ(layout.rank({.cp = 1}), kUneven.tp);
  EXPECT_EQ(layout.rank({.dp = 1}), kUneven.tp * kUneven.cp);
  EXPECT_EQ(layout.rank({.pp = 1}), kUneven.tp * kUneven.cp * kUneven.dp);
}

TEST(Layout, EveryRankIsInExactlyOneGroupOfEachKind) {
  const Layout layout = uneven();
  for (const GroupKind kind :
       {GroupKind::kAttentionTensor, GroupKind::kFeedForwardTensor, GroupKind::kContext, GroupKind::kExpert,
        GroupKind::kPipeline, GroupKind::kSampling}) {
    for (std::int32_t rank = 0; rank < layout.ranks(); ++rank) {
      const Group group = layout.group(kind, rank);
      ASSERT_LT(group.index, group.size());
      EXPECT_EQ(group.ranks[static_cast<std::size_t>(group.index)], rank);
      // Its members agree on who belongs to it, in the same order.
      for (const std::int32_t member : group.ranks) EXPECT_EQ(layout.group(kind, member).ranks, group.ranks);
    }
  }
}

TEST(Layout, GroupSizesAreTheDegrees) {
  const Layout layout = uneven();
  EXPECT_EQ(layout.group(GroupKind::kAttentionTensor, 7).size(), kUneven.tp);
  EXPECT_EQ(layout.group(GroupKind::kFeedForwardTensor, 7).size(), kUneven.tp);
  EXPECT_EQ(layout.group(GroupKind::kSampling, 7).size(), kUneven.tp);
  EXPECT_EQ(layout.group(GroupKind::kContext, 7).size(), kUneven.cp);
  EXPECT_EQ(layout.group(GroupKind::kExpert, 7).size(), kUneven.ep);
  EXPECT_EQ(layout.group(GroupKind::kPipeline, 7).size(), kUneven.pp);
  EXPECT_EQ(layout.sub_batches(), kUneven.cp * kUneven.dp);
}

TEST(Layout, ExpertGroupsStayInsideTheirStage) {
  const Layout layout = uneven();
  for (std::int32_t rank = 0; rank < layout.ranks(); ++rank) {
    for (const std::int32_t member : layout.group(GroupKind::kExpert, rank).ranks) {
      EXPECT_EQ(layout.coordinate(member).pp, layout.coordinate(rank).pp);
    }
  }
}

TEST(Layout, RefusesDegreesBelowOneNamingThem) {
  const auto layout = Layout::make({.cp = 0});
  ASSERT_FALSE(layout.ok());
  EXPECT_EQ(layout.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(layout.error().message().find("cp is 0"), std::string::npos);
}

TEST(Layout, RefusesAnExpertDegreeThatDividesNothing) {
  EXPECT_FALSE(Layout::make({.tp = 4, .ep = 3}).ok());
  EXPECT_TRUE(Layout::make({.tp = 4, .ep = 2}).ok());
}

}  // namespace
}  // namespace shoal
