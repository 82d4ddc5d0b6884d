// How pages are dealt to coordinates, and what moves between them.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "layout/context_moves.h"
#include "layout/context_partition.h"
#include "layout/context_work.h"

namespace shoal {
namespace {

std::vector<std::int64_t> counts(const std::vector<std::int32_t>& owners, std::int32_t coordinates) {
  std::vector<std::int64_t> each;
  for (std::int32_t c = 0; c < coordinates; ++c) each.push_back(std::ranges::count(owners, c));
  return each;
}

// Pairs of blocks that a coordinate's queries see, diagonal ones as half.
double work_of(const std::vector<std::int32_t>& owners, std::int32_t coordinate) {
  double work = 0;
  for (std::size_t page = 0; page < owners.size(); ++page) {
    if (owners[page] == coordinate) work += static_cast<double>(page) + 0.5;
  }
  return work;
}

TEST(DealPages, ZigzagGivesEqualWork) {
  for (const std::int32_t degree : {2, 3, 4}) {
    const ContextLanes lanes{0, degree, degree};
    const auto owners = deal_pages(ContextPartition::kZigzag, lanes, 0, 48 * degree);
    for (const std::int64_t count : counts(owners, degree)) EXPECT_EQ(count, 48);
    for (std::int32_t c = 1; c < degree; ++c) EXPECT_DOUBLE_EQ(work_of(owners, c), work_of(owners, 0));
    EXPECT_EQ(owners.back(), 0);
    // Whole segments stay together.
    for (std::size_t page = 0; page < owners.size(); ++page)
      EXPECT_EQ(owners[page], owners[page / kSegmentPages * kSegmentPages]);
    // In contiguous blocks the last coordinate has (2 M - 1) / M times its share.
    const auto blocks = deal_pages(ContextPartition::kContiguous, lanes, 0, 48 * degree);
    EXPECT_TRUE(std::ranges::is_sorted(blocks));
    EXPECT_NEAR(work_of(blocks, degree - 1) / work_of(owners, 0), (2.0 * degree - 1) / degree, 1e-9);
  }
}

// The length at which a step's bytes and the work beside them take as long.
TEST(DealPages, RingIsHiddenFromSomeLengthOn) {
  const RingSpeeds speeds{.query_heads = 32, .kv_heads = 8, .attention_flops = 1.6e11, .link_bytes = 1.25e8};
  const double head = 64;
  for (const std::int32_t m : {2, 3, 4}) {
    const double tokens = ring_hidden_from(speeds, m);
    const double share = tokens / m;
    const double travels = share * 2 * speeds.kv_heads * head * 2 / speeds.link_bytes;
    const double attends = share * share / 2 * 4 * speeds.query_heads * head / speeds.attention_flops;
    EXPECT_NEAR(travels / attends, 1, 1e-9);
  }
  EXPECT_NEAR(ring_hidden_from(speeds, 2), 1280, 1e-6);
}

TEST(DealPages, AnyNumberOfPagesFromAnywhere) {
  for (const auto partition : {ContextPartition::kZigzag, ContextPartition::kStriped,
                               ContextPartition::kContiguous, ContextPartition::kMasked}) {
    for (std::int32_t coordinates = 1; coordinates <= 4; ++coordinates) {
      for (std::int32_t degree = 1; degree <= coordinates; ++degree) {
        for (const std::int32_t first : {0, 3, 8, 100}) {
          for (const std::int32_t pages : {1, 2, 5, 9, 31, 64, 77}) {
            const ContextLanes lanes{coordinates - 1, degree, coordinates};
            const auto owners = deal_pages(partition, lanes, first, pages);
            ASSERT_EQ(std::ssize(owners), pages);
            for (const std::int32_t owner : owners)
              EXPECT_LT((owner - lanes.first + coordinates) % coordinates, degree);
          }
        }
      }
    }
  }
  EXPECT_EQ(deal_pages(ContextPartition::kStriped, {0, 3, 3}, 0, 5),
            (std::vector<std::int32_t>{0, 1, 2, 0, 1}));
  // A lone page leaves the others without one.
  EXPECT_EQ(deal_pages(ContextPartition::kZigzag, {1, 4, 4}, 0, 1).size(), 1U);
}

TEST(DealPages, NamesAreTheFlags) {
  for (const char* name : {"zigzag", "striped", "contiguous", "masked"})
    EXPECT_EQ(partition_name(*partition_from_name(name)), name);
  EXPECT_FALSE(partition_from_name("ring").has_value());
}

ContextSpan span_of(const std::vector<std::int32_t>& owners, const std::vector<std::int32_t>& slots,
                    std::int32_t start, std::int32_t rows) {
  ContextSpan span;
  span.start = start;
  span.rows = rows;
  span.slots = slots;
  span.owners = owners;
  return span;
}

TEST(Pieces, RunsBeginSegmentsAndOtherPagesStandAlone) {
  //                                  segment 0                  segment 1
  const std::vector<std::int32_t> owners = {0, 0, 1, 0, 0, 1, 1, 1, 1, 1, 0, 1};
  const std::vector<std::int32_t> slots(owners.size());
  const ContextSpan span = span_of(owners, slots, 11 * kPageTokens, 1);
  const auto pieces = [&](std::int32_t owner, std::int32_t window) {
    std::vector<PagePiece> runs;
    pieces_of(span, owner, window, runs);
    std::vector<std::pair<int, int>> out;
    for (const PagePiece& run : runs) out.emplace_back(run.begin, run.end);
    return out;
  };
  using Runs = std::vector<std::pair<int, int>>;
  EXPECT_EQ(pieces(0, 0), (Runs{{0, 2}, {3, 4}, {4, 5}, {10, 11}}));
  EXPECT_EQ(pieces(1, 0), (Runs{{2, 3}, {5, 6}, {6, 7}, {7, 8}, {8, 10}, {11, 12}}));
  // Behind a window the first visible page begins what is folded.
  EXPECT_EQ(pieces(1, 6 * kPageTokens), (Runs{{5, 8}, {8, 10}, {11, 12}}));
}

// What one lists as sent the other lists as received, in order; nothing comes twice.
TEST(ContextMoves, BothSidesListTheSame) {
  std::mt19937 random(5);
  const auto below = [&](std::int32_t n) {
    return static_cast<std::int32_t>(random() % static_cast<unsigned>(n));
  };
  for (int round = 0; round < 200; ++round) {
    const std::int32_t coordinates = 2 + below(3);
    const std::int32_t window = below(3) == 0 ? 50 + below(200) : 0;
    std::vector<std::vector<std::int32_t>> owners(5), slots(5);
    ContextWork work(static_cast<std::size_t>(coordinates));
    for (std::size_t s = 0; s < owners.size(); ++s) {
      const std::int32_t pages = 1 + below(30);
      for (std::int32_t page = 0; page < pages; ++page) {
        owners[s].push_back(below(coordinates));
        slots[s].push_back(static_cast<std::int32_t>(s) * 40 + page);
      }
      const std::int32_t page = below(pages);
      ContextSpan span = span_of(owners[s], slots[s], page * kPageTokens, 1 + below(kPageTokens));
      span.pass_queries = below(2) == 0;
      span.decodes = below(3) == 0;
      work[static_cast<std::size_t>(owners[s][static_cast<std::size_t>(page)])].push_back(span);
    }
    for (const auto traffic : {ContextTraffic::kRing, ContextTraffic::kMerge}) {
      const bool pieces = below(2) == 0;
      std::vector<ContextMoves> moves(work.size());
      for (std::int32_t c = 0; c < coordinates; ++c)
        moves[static_cast<std::size_t>(c)].make(work, traffic, c, window, pieces);
      for (std::size_t a = 0; a < work.size(); ++a) {
        for (std::size_t b = 0; b < work.size(); ++b) {
          const ContextExchange& from = moves[a].exchanges()[b];
          const ContextExchange& to = moves[b].exchanges()[a];
          EXPECT_EQ(from.pages_out, to.pages_in);
          EXPECT_EQ(from.queries_out, to.queries_in);
          EXPECT_EQ(from.query_rows_out, to.query_rows_in);
          EXPECT_EQ(from.state_rows_out, to.state_rows_in);
          EXPECT_TRUE(a != b || (from.pages_out.empty() && from.queries_out.empty()));
          auto once = from.pages_out;
          std::ranges::sort(once);
          EXPECT_TRUE(std::ranges::adjacent_find(once) == once.end());
          for (std::size_t i = 0; i < to.pages_in.size(); ++i)
            EXPECT_EQ(moves[b].arrival(static_cast<std::int32_t>(a), to.pages_in[i]),
                      static_cast<std::int32_t>(i));
        }
      }
    }
  }
}

}  // namespace
}  // namespace shoal
