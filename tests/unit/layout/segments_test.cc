#include "layout/segments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace shoal {
namespace {

using Ends = std::vector<std::int64_t>;

// Widths of the segments.
Ends widths(const Ends& ends) {
  Ends out;
  std::int64_t begin = 0;
  for (const std::int64_t end : ends) {
    out.push_back(end - begin);
    begin = end;
  }
  return out;
}

TEST(AttentionSegments, FewHeadsGetOneSegmentEach) {
  EXPECT_EQ(attention_segments(9, 64, true), (Ends{64, 128, 192, 256, 320, 384, 448, 512, 576}));
  EXPECT_EQ(attention_segments(1, 64, true), Ends{64});
}

TEST(AttentionSegments, ManyHeadsAreTakenTogetherUntilSixteenSegmentsDo) {
  const Ends ends = attention_segments(40, 128, false);
  EXPECT_EQ(ends.front(), 3 * 128);  // 40 / 16 rounded up
  EXPECT_EQ(ends.size(), 14U);
  EXPECT_EQ(ends.back(), 40 * 128);
  EXPECT_EQ(widths(ends).back(), 128);  // 13 x 3 heads, then one
}

TEST(AttentionSegments, QuantisedWeightsCutAtBlocksOnly) {
  EXPECT_EQ(attention_segments(8, 16, true), (Ends{32, 64, 96, 128}));
  EXPECT_EQ(attention_segments(8, 16, false).size(), 8U);
  // 8 wide heads: four make a block.
  EXPECT_EQ(attention_segments(8, 8, true), (Ends{32, 64}));
}

TEST(AttentionSegments, OneSegmentWhereNoNumberOfHeadsFitsABlock) {
  EXPECT_EQ(attention_segments(3, 20, true), Ends{60});
}

TEST(FeedForwardSegments, EqualWidthsWithAShortLastOne) {
  EXPECT_EQ(feed_forward_segments(8192).size(), 16U);
  EXPECT_EQ(widths(feed_forward_segments(8192)), Ends(16, 512));
  const Ends odd = widths(feed_forward_segments(172));
  EXPECT_EQ(odd, (Ends{32, 32, 32, 32, 32, 12}));
}

TEST(Segments, InvariantsHoldForEveryWidth) {
  for (std::int64_t ffn = 1; ffn < 5000; ++ffn) {
    const Ends ends = feed_forward_segments(ffn);
    ASSERT_LE(ends.size(), static_cast<std::size_t>(kMaxSegments));
    ASSERT_EQ(ends.back(), ffn);
    ASSERT_TRUE(std::is_sorted(ends.begin(), ends.end()));
    for (std::size_t i = 0; i + 1 < ends.size(); ++i) ASSERT_EQ(ends[i] % 32, 0);
    for (const std::int64_t width : widths(ends)) ASSERT_GT(width, 0);
  }
  for (std::int32_t heads = 1; heads <= 130; ++heads) {
    for (const std::int32_t head_dim : {2, 8, 16, 20, 64, 80, 96, 128}) {
      for (const bool quantised : {false, true}) {
        const Ends ends = attention_segments(heads, head_dim, quantised);
        ASSERT_LE(ends.size(), static_cast<std::size_t>(kMaxSegments));
        ASSERT_EQ(ends.back(), heads * head_dim);
        for (std::size_t i = 0; i + 1 < ends.size(); ++i) {
          ASSERT_EQ(ends[i] % head_dim, 0) << "a segment cuts a head";
          if (quantised) {
            ASSERT_EQ(ends[i] % 32, 0);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace shoal
