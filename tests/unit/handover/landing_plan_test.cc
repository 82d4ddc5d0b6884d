// What each rank of a decode worker is told to fetch.

#include "handover/landing_plan.h"

#include <gtest/gtest.h>

namespace shoal::handover {
namespace {

// A decode worker of tp 2, cp 2, of a model with one group of 4 layers and 6 heads.
engine::KvPools decode_pools() {
  engine::KvPools pools;
  pools.layout = *Layout::make({.tp = 2, .cp = 2});
  pools.groups.resize(1);
  pools.parts = {{{0, 4, 0, 3}}, {{0, 4, 3, 3}}, {{0, 4, 0, 3}}, {{0, 4, 3, 3}}};
  return pools;
}

kv::NewPage page(std::int32_t logical, std::int32_t coordinate, std::int32_t slot) {
  return {0, logical, {coordinate, slot, 7}};
}

TEST(LandingPlan, EveryRankFetchesItsHeadsOfItsPages) {
  const std::vector<kv::NewPage> lacking = {page(3, 0, 11), page(1, 0, 10), page(2, 1, 10)};
  // Stages of 1 and 3 layers.
  const wire::Accept prefill{{{":100", 0, {{0, 1, 0, 6}}}, {"10.0.0.2:101", 0, {{1, 3, 0, 6}}}}};
  const auto words = landing_plan(decode_pools(), lacking, prefill, "fe80::1");
  ASSERT_TRUE(words.ok()) << words.status().message();
  ASSERT_EQ(words->size(), 4U);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    SCOPED_TRACE(rank);
    const wire::RankWord& word = (*words)[rank];
    if (rank < 2) {
      EXPECT_EQ(word.pages, (std::vector<wire::RoomPage>{{0, 1, 10, 7}, {0, 3, 11, 7}}));
    } else {
      EXPECT_EQ(word.pages, (std::vector<wire::RoomPage>{{0, 2, 10, 7}}));
    }
    const std::int32_t head = rank % 2 == 0 ? 0 : 3;
    ASSERT_EQ(word.sources.size(), 2U);
    EXPECT_EQ(word.sources[0].endpoint, "[fe80::1]:100");
    ASSERT_EQ(word.sources[0].parts.size(), 1U);
    EXPECT_EQ(word.sources[0].parts[0].part, (KvPart{0, 1, head, 3}));
    EXPECT_EQ(word.sources[1].endpoint, "10.0.0.2:101");
    EXPECT_EQ(word.sources[1].parts[0].part, (KvPart{1, 3, head, 3}));
  }
}

TEST(LandingPlan, EveryCoordinateIsAskedAndTheLowestRankSendsADuplicate) {
  const std::vector<kv::NewPage> lacking = {page(0, 1, 4)};
  // Two coordinates of two ranks that share head 2.
  const wire::Accept prefill{{{":1", 0, {{0, 4, 0, 3}}},
                              {":2", 0, {{0, 4, 2, 4}}},
                              {":3", 1, {{0, 4, 0, 3}}},
                              {":4", 1, {{0, 4, 2, 4}}}}};
  const auto words = landing_plan(decode_pools(), lacking, prefill, "h");
  ASSERT_TRUE(words.ok()) << words.status().message();
  EXPECT_TRUE((*words)[0].sources.empty());
  EXPECT_TRUE((*words)[1].sources.empty());
  ASSERT_EQ((*words)[2].sources.size(), 2U);
  EXPECT_EQ((*words)[2].sources[0].endpoint, "h:1");
  EXPECT_EQ((*words)[2].sources[1].endpoint, "h:3");
  ASSERT_EQ((*words)[3].sources.size(), 2U);
  EXPECT_EQ((*words)[3].sources[0].endpoint, "h:2");
  EXPECT_EQ((*words)[3].sources[0].parts[0].part, (KvPart{0, 4, 3, 3}));
}

TEST(LandingPlan, APrefillWorkerThatHoldsTooLittleOrNonsenseIsNamed) {
  const std::vector<kv::NewPage> lacking = {page(0, 0, 4)};
  const auto refused = [&](const wire::Accept& prefill) {
    const auto words = landing_plan(decode_pools(), lacking, prefill, "h");
    EXPECT_FALSE(words.ok());
    return words.ok() ? "" : words.error().message();
  };
  EXPECT_NE(refused({{{":1", 0, {{0, 3, 0, 6}}}}}).find("layer 3"), std::string::npos);
  EXPECT_NE(refused({{{":1", 0, {{0, 4, 0, 6}}}, {":2", 1, {{0, 4, 0, 5}}}}}).find("head 5"),
            std::string::npos);
  EXPECT_NE(refused({}).find("no ranks"), std::string::npos);
  EXPECT_NE(refused({{{":1", 0, {}}}}).find("groups"), std::string::npos);
  EXPECT_NE(refused({{{":1", 0, {{0, 1 << 30, 0, 6}}}}}).find("no rank can"), std::string::npos);
  EXPECT_NE(refused({{{":1", -1, {{0, 4, 0, 6}}}}}).find("hold"), std::string::npos);
}

}  // namespace
}  // namespace shoal::handover
