#include "parallel/collectives.h"

#include <gtest/gtest.h>

namespace shoal::parallel {
namespace {

TEST(Collectives, OneRankNeedsNoCarriers) { EXPECT_TRUE(check_carriers(Layout::single()).ok()); }

TEST(Collectives, RefusesEveryDegreeAboveOneByName) {
  for (const auto& [name, degrees] : {std::pair{"tp 2", Degrees{.tp = 2}},
                                      {"pp 3", Degrees{.pp = 3}},
                                      {"cp 2", Degrees{.cp = 2}},
                                      {"dp 4", Degrees{.dp = 4}}}) {
    const Status status = check_carriers(*Layout::make(degrees));
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.code(), ErrorCode::kUnsupported);
    EXPECT_EQ(status.message().find(name), 0U) << status.message();
  }
}

TEST(Collectives, ASumOverAGroupOfOneChangesNothing) {
  float values[] = {1, 2, 3};
  sum_partials(Layout::single().group(GroupKind::kAttentionTensor, 0), MatrixView<float>(values, 1, 3));
  EXPECT_EQ(values[0], 1);
  EXPECT_EQ(values[2], 3);
}

}  // namespace
}  // namespace shoal::parallel
