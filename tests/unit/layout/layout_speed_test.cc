#include "layout/layout_speed.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

// A model of 1.3 GB in 16 layers on a host of cores enough.
LayoutFacts large(Degrees degrees) {
  LayoutFacts facts;
  facts.degrees = degrees;
  facts.stage_bytes.assign(static_cast<std::size_t>(degrees.pp), 1.3e9 / degrees.pp);
  facts.sums = 32;
  facts.sum_seconds = 5e-6;
  facts.cores = 8;
  return facts;
}

TEST(LayoutSpeed, PartsOfALargeModelAreFaster) {
  EXPECT_FALSE(why_slower_than_one_rank(large({})));
  EXPECT_FALSE(why_slower_than_one_rank(large({.tp = 2})));
  EXPECT_FALSE(why_slower_than_one_rank(large({.pp = 4})));
  EXPECT_FALSE(why_slower_than_one_rank(large({.tp = 2, .pp = 2})));
}

TEST(LayoutSpeed, AModelTooSmallToShareIsSaid) {
  LayoutFacts facts = large({.tp = 2});
  facts.stage_bytes = {1e6};
  const auto reason = why_slower_than_one_rank(facts);
  ASSERT_TRUE(reason);
  EXPECT_EQ(reason->find("the 32 sums of a token take about 0.2 ms"), 0U) << *reason;
}

TEST(LayoutSpeed, RanksWithoutCoresTakeTurns) {
  LayoutFacts facts = large({.tp = 4});
  facts.cores = 1;
  const auto reason = why_slower_than_one_rank(facts);
  ASSERT_TRUE(reason);
  EXPECT_EQ(reason->find("4 ranks of 1 threads share 1 cores"), 0U) << *reason;
}

TEST(LayoutSpeed, AStageThatHoldsNearlyAllIsSaid) {
  LayoutFacts facts = large({.tp = 2});
  facts.tp_split = {4000, 1};
  const auto reason = why_slower_than_one_rank(facts);
  ASSERT_TRUE(reason);
  EXPECT_EQ(reason->find("one part holds 100 % of the model"), 0U) << *reason;
}

}  // namespace
}  // namespace shoal
