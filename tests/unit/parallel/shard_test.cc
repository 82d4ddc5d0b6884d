#include "parallel/shard.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "layout/segments.h"

namespace shoal::parallel {
namespace {

using Ends = std::vector<std::int64_t>;

// Puts the ranks' segments back together, as columns of the whole.
template <typename Shard>
Ends rejoin(const std::vector<Shard>& shards, const std::vector<std::int64_t>& first_columns) {
  Ends ends;
  for (std::size_t rank = 0; rank < shards.size(); ++rank) {
    EXPECT_EQ(shards[rank].first_segment, static_cast<std::int32_t>(ends.size()));
    for (const std::int64_t end : shards[rank].segment_ends) ends.push_back(first_columns[rank] + end);
  }
  return ends;
}

TEST(AttentionShard, OneRankHoldsTheWhole) {
  const auto shard = attention_shard({9, 3, 64}, true, {1, 0});
  ASSERT_TRUE(shard.ok());
  EXPECT_EQ(shard->query_heads, (IndexRange{0, 9}));
  EXPECT_EQ(shard->kv_heads, (IndexRange{0, 3}));
  EXPECT_EQ(shard->kv_head_of, (std::vector<std::int32_t>{0, 0, 0, 1, 1, 1, 2, 2, 2}));
  EXPECT_EQ(shard->segment_ends, attention_segments(9, 64, true));
}

TEST(AttentionShard, RanksHoldTheModelsSegmentsInOrderAtEveryDegree) {
  for (const HeadCounts heads : {HeadCounts{32, 8, 64}, {9, 3, 64}, {40, 8, 128}, {8, 8, 8}, {7, 1, 64}}) {
    for (const bool quantised : {false, true}) {
      const Ends whole = attention_segments(heads.query, heads.head_dim, quantised);
      for (std::int32_t ranks = 1; ranks <= static_cast<std::int32_t>(whole.size()); ++ranks) {
        std::vector<AttentionShard> shards;
        std::vector<std::int64_t> first_columns;
        std::int64_t next_head = 0;
        for (std::int32_t i = 0; i < ranks; ++i) {
          auto shard = attention_shard(heads, quantised, {ranks, i});
          ASSERT_TRUE(shard.ok());
          ASSERT_EQ(shard->query_heads.begin, next_head);
          ASSERT_FALSE(shard->query_heads.empty());
          next_head = shard->query_heads.end;
          first_columns.push_back(shard->query_heads.begin * heads.head_dim);
          shards.push_back(*shard);
        }
        EXPECT_EQ(next_head, heads.query);
        EXPECT_EQ(rejoin(shards, first_columns), whole);
      }
    }
  }
}

TEST(AttentionShard, EveryQueryHeadFindsItsKvHeadOnItsRank) {
  const HeadCounts heads{32, 8, 64};
  for (const std::int32_t ranks : {1, 2, 3, 5, 7, 16}) {
    for (std::int32_t i = 0; i < ranks; ++i) {
      const auto shard = attention_shard(heads, true, {ranks, i});
      ASSERT_TRUE(shard.ok());
      ASSERT_EQ(static_cast<std::int64_t>(shard->kv_head_of.size()), shard->query_heads.size());
      for (std::int64_t q = 0; q < shard->query_heads.size(); ++q) {
        const std::int64_t kv = shard->kv_heads.begin + shard->kv_head_of[static_cast<std::size_t>(q)];
        EXPECT_EQ(kv, (shard->query_heads.begin + q) / 4);
        EXPECT_LT(kv, shard->kv_heads.end);
      }
    }
  }
}

TEST(AttentionShard, NeighboursMayShareAKvHead) {
  // Nine heads of three on two ranks: heads 0-3 and 4-8 both read KV head 1.
  const auto low = attention_shard({9, 3, 64}, true, {2, 0});
  const auto high = attention_shard({9, 3, 64}, true, {2, 1});
  EXPECT_EQ(low->kv_heads, (IndexRange{0, 2}));
  EXPECT_EQ(high->kv_heads, (IndexRange{1, 3}));
}

TEST(AttentionShard, RefusesMoreRanksThanSegmentsNamingTheNearest) {
  const auto shard = attention_shard({9, 3, 64}, true, {10, 0});
  ASSERT_FALSE(shard.ok());
  EXPECT_EQ(shard.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(shard.error().message().find("tp 9"), std::string::npos) << shard.error().message();
}

TEST(AttentionShard, RefusesHeadsThatCannotBeShared) {
  EXPECT_FALSE(attention_shard({9, 2, 64}, true, {1, 0}).ok());
  EXPECT_FALSE(attention_shard({0, 0, 64}, true, {1, 0}).ok());
}

TEST(AttentionShard, WeightedRanksGetTheirShares) {
  const std::vector<std::int32_t> split = {3, 1};
  // 32 heads in 16 segments of two.
  EXPECT_EQ(attention_shard({32, 8, 64}, true, {2, 0, split})->query_heads, (IndexRange{0, 24}));
  EXPECT_EQ(attention_shard({32, 8, 64}, true, {2, 1, split})->query_heads, (IndexRange{24, 32}));
  EXPECT_EQ(attention_shard({32, 8, 64}, true, {2, 1, split})->kv_heads, (IndexRange{6, 8}));
  EXPECT_EQ(feed_forward_shard(8192, {2, 0, split})->columns, (IndexRange{0, 6144}));
  EXPECT_EQ(vocabulary_shard(128256, {2, 0, split}), (IndexRange{0, 95 * 1024}));
}

TEST(AttentionShard, SharesBetweenTwoBordersAreRefusedWithTheNearest) {
  const std::vector<std::int32_t> split = {3, 1};
  EXPECT_EQ(attention_shard({9, 3, 64}, true, {2, 0, split}).error().message(),
            "--tp-split 3,1: the attention output has 9 parts, which cannot be dealt so; the nearest is 7,2");
  const std::vector<std::int32_t> lopsided = {100, 1, 1};
  EXPECT_EQ(attention_shard({9, 3, 64}, true, {3, 0, lopsided}).error().message(),
            "--tp-split 100,1,1: the attention output has 9 parts, which cannot be dealt so; the nearest is "
            "7,1,1");
  const std::vector<std::int32_t> exact = {7, 2};
  EXPECT_EQ(attention_shard({9, 3, 64}, true, {2, 1, exact})->query_heads, (IndexRange{7, 9}));
  EXPECT_EQ(check_split(split, 3).message(), "--tp-split 3,1: with --tp 3 it takes 3 shares of at least 1");
  EXPECT_TRUE(check_split({}, 3).ok());
}

TEST(FeedForwardShard, RanksHoldTheModelsSegmentsInOrderAtEveryDegree) {
  for (const std::int64_t width : {172, 1536, 8192, 14336, 11008, 32}) {
    const Ends whole = feed_forward_segments(width);
    for (std::int32_t ranks = 1; ranks <= static_cast<std::int32_t>(whole.size()); ++ranks) {
      std::vector<FeedForwardShard> shards;
      std::vector<std::int64_t> first_columns;
      for (std::int32_t i = 0; i < ranks; ++i) {
        auto shard = feed_forward_shard(width, {ranks, i});
        ASSERT_TRUE(shard.ok());
        EXPECT_EQ(shard->segment_ends.back(), shard->columns.size());
        first_columns.push_back(shard->columns.begin);
        shards.push_back(*shard);
      }
      EXPECT_EQ(rejoin(shards, first_columns), whole);
    }
    EXPECT_FALSE(feed_forward_shard(width, {static_cast<std::int32_t>(whole.size()) + 1, 0}).ok());
  }
}

TEST(VocabularyShard, CoversEveryIdOnceInWholeSegments) {
  for (const std::int64_t vocabulary : {105, 512, 32000, 49152, 128256, 151936}) {
    for (const std::int32_t ranks : {1, 2, 3, 8}) {
      std::int64_t next = 0;
      for (std::int32_t i = 0; i < ranks; ++i) {
        const IndexRange shard = vocabulary_shard(vocabulary, {ranks, i});
        EXPECT_EQ(shard.begin, next);
        if (i + 1 < ranks && !shard.empty() && shard.end < vocabulary) {
          EXPECT_EQ(shard.end % 1024, 0);
        }
        next = shard.end;
      }
      EXPECT_EQ(next, vocabulary);
    }
  }
}

}  // namespace
}  // namespace shoal::parallel
