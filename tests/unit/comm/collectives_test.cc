#include "comm/collectives.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <vector>

#include "carrier_rig.h"

namespace shoal::comm {
namespace {

struct Setting {
  const char* carrier;
  std::int32_t ranks;
  std::int32_t lanes;
};

class CollectivesOver : public testing::TestWithParam<Setting> {
 protected:
  RigOptions options() const {
    RigOptions options;
    options.carrier = GetParam().carrier;
    options.ranks = GetParam().ranks;
    options.lanes = GetParam().lanes;
    return options;
  }
  std::int32_t ranks() const { return GetParam().ranks; }
};

// What rank `rank` brings as its part `part` in round `round`: sums depend on the order of adding.
std::vector<float> values_of(std::int32_t rank, std::int32_t part, int round, std::size_t n) {
  std::mt19937 random(static_cast<unsigned>(rank * 1000 + part * 100 + round));
  std::uniform_real_distribution<float> uniform(-1e4F, 1e4F);
  std::vector<float> values(n);
  for (float& value : values) value = uniform(random);
  return values;
}

std::vector<std::size_t> sizes(unsigned seed) {
  // Around every border: lines, lanes, one shot or two, pieces, direct or in chunks.
  std::vector<std::size_t> sizes = {0,    1,     15,    16,    17,    100,       2048,
                                    8192, 16383, 16384, 16385, 40000, 262144 + 3};
  std::mt19937 random(seed);
  for (int i = 0; i < 12; ++i) sizes.push_back(random() % (1U << (random() % 17)));
  std::shuffle(sizes.begin(), sizes.end(), random);
  return sizes;
}

TEST_P(CollectivesOver, SumsInRankOrderOnEveryRank) {
  CarrierRig rig(options());
  rig.run([&](std::int32_t rank, Collectives& group) {
    int round = 0;
    for (const std::size_t n : sizes(1)) {
      std::vector<float> expected = values_of(0, 0, round, n);
      for (std::int32_t r = 1; r < ranks(); ++r) {
        const std::vector<float> theirs = values_of(r, 0, round, n);
        for (std::size_t i = 0; i < n; ++i) expected[i] += theirs[i];
      }
      std::vector<float> mine = values_of(rank, 0, round, n);
      ASSERT_TRUE(group.all_reduce(Purpose::kTp, mine).ok());
      ASSERT_EQ(mine, expected) << n;
      ++round;
    }
  });
}

// Values in the ranks' arenas, each rank's at another place of its own.
TEST_P(CollectivesOver, SumsWhereValuesLie) {
  RigOptions with_arena = options();
  with_arena.arena_bytes = 2 << 20;
  CarrierRig rig(with_arena);
  rig.run([&](std::int32_t rank, Collectives& group) {
    const auto arena = rig.carrier(rank).arena();
    int round = 0;
    for (const std::size_t n : sizes(3)) {
      std::vector<float> expected = values_of(0, 0, round, n);
      for (std::int32_t r = 1; r < ranks(); ++r) {
        const std::vector<float> theirs = values_of(r, 0, round, n);
        for (std::size_t i = 0; i < n; ++i) expected[i] += theirs[i];
      }
      std::vector<float> mine = values_of(rank, 0, round, n);
      float* place = mine.data();
      if (!arena.empty()) {
        place = reinterpret_cast<float*>(arena.data()) + 64 * rank;
        std::copy(mine.begin(), mine.end(), place);
      }
      ASSERT_TRUE(group.all_reduce(Purpose::kTp, std::span(place, n)).ok());
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), place)) << n;
      ++round;
    }
  });
}

TEST_P(CollectivesOver, SumsPartsAsOneRankWould) {
  CarrierRig rig(options());
  std::vector<std::int32_t> counts;
  for (std::int32_t r = 0; r < ranks(); ++r) counts.push_back(1 + (r * 2 + 1) % 4);
  rig.run([&](std::int32_t rank, Collectives& group) {
    int round = 50;
    for (const std::size_t n : sizes(2)) {
      std::vector<float> expected;
      std::vector<std::vector<float>> mine;
      for (std::int32_t r = 0; r < ranks(); ++r) {
        for (std::int32_t p = 0; p < counts[static_cast<std::size_t>(r)]; ++p) {
          const std::vector<float> part = values_of(r, p, round, n);
          if (r == rank) mine.push_back(part);
          if (expected.empty()) {
            expected = part;
          } else {
            for (std::size_t i = 0; i < n; ++i) expected[i] += part[i];
          }
        }
      }
      std::vector<const float*> pointers;
      for (const auto& part : mine) pointers.push_back(part.data());
      ASSERT_TRUE(group.all_reduce(Purpose::kTp, {counts, pointers}, mine.front()).ok());
      ASSERT_EQ(mine.front(), expected) << n;
      ++round;
    }
  });
}

// Ranks that sum from host to host hold the bits of a sum over one host, whoever brings how many parts.
TEST(CollectivesOverHosts, SumAsOverOne) {
  for (const std::vector<std::int32_t>& hosts :
       {std::vector<std::int32_t>{0, 0, 1, 1}, {4, 4, 2, 2, 9, 9}, {0, 0, 0, 1, 1, 1}}) {
    const auto ranks = static_cast<std::int32_t>(hosts.size());
    RigOptions options;
    options.ranks = ranks;
    options.hosts = hosts;
    CarrierRig rig(options);
    std::vector<std::int32_t> counts;
    for (std::int32_t r = 0; r < ranks; ++r) counts.push_back(1 + r % 3);
    rig.run([&](std::int32_t rank, Collectives& group) {
      int round = 0;
      // Below what goes directly, one piece, several pieces with a short last one, shares of unlike size.
      for (const std::size_t n : {100, 5000, 16384 + 5, 400000 + 3}) {
        std::vector<float> expected(n);
        std::vector<std::vector<float>> mine;
        for (std::int32_t r = 0; r < ranks; ++r) {
          for (std::int32_t p = 0; p < counts[static_cast<std::size_t>(r)]; ++p) {
            const std::vector<float> part = values_of(r, p, round, n);
            if (r == rank) mine.push_back(part);
            for (std::size_t i = 0; i < n; ++i) expected[i] = r + p == 0 ? part[i] : expected[i] + part[i];
          }
        }
        std::vector<const float*> pointers;
        for (const auto& part : mine) pointers.push_back(part.data());
        ASSERT_TRUE(group.all_reduce(Purpose::kTp, {counts, pointers}, mine.front()).ok());
        ASSERT_EQ(mine.front(), expected) << n;
        ++round;
      }
    });
  }
}

TEST(CollectivesOverHosts, EachValueCrossesOnceEachWay) {
  RigOptions options;
  options.ranks = 4;
  options.hosts = {0, 0, 1, 1};
  CarrierRig rig(options);
  constexpr std::size_t kValues = 64 * 1024;
  rig.run([&](std::int32_t, Collectives& group) {
    std::vector<float> values(kValues, 1);
    ASSERT_TRUE(group.all_reduce(Purpose::kTp, values).ok());
    ASSERT_EQ(values, std::vector<float>(kValues, 4));
  });
  // Of each rank: half of the values to its neighbour, half to the other host, its half's sums to its
  // neighbour.
  for (std::int32_t rank = 0; rank < 4; ++rank)
    EXPECT_EQ(rig.ledger(rank).totals(Purpose::kTp).wire[0], 3U * kValues / 2 * sizeof(float));
}

TEST_P(CollectivesOver, ReduceScatterLeavesEachItsSums) {
  CarrierRig rig(options());
  rig.run([&](std::int32_t rank, Collectives& group) {
    for (const std::size_t unit : {0, 1, 33, 3000}) {
      std::vector<std::int64_t> counts;
      std::size_t total = 0, first = 0;
      for (std::int32_t r = 0; r < ranks(); ++r) {
        if (r == rank) first = total;
        counts.push_back(static_cast<std::int64_t>(unit) * (r % 3));
        total += unit * static_cast<std::size_t>(r % 3);
      }
      std::vector<float> expected = values_of(0, 0, 7, total);
      for (std::int32_t r = 1; r < ranks(); ++r) {
        const auto theirs = values_of(r, 0, 7, total);
        for (std::size_t i = 0; i < total; ++i) expected[i] += theirs[i];
      }
      std::vector<float> out(static_cast<std::size_t>(counts[static_cast<std::size_t>(rank)]));
      ASSERT_TRUE(group.reduce_scatter(Purpose::kTp, counts, values_of(rank, 0, 7, total), out).ok());
      ASSERT_TRUE(std::equal(out.begin(), out.end(), expected.begin() + static_cast<std::ptrdiff_t>(first)));
    }
  });
}

TEST_P(CollectivesOver, GathersAndScattersBytesOfAnySizes) {
  CarrierRig rig(options());
  const auto byte_of = [](std::int32_t from, std::int32_t to, std::size_t i) {
    return static_cast<std::byte>(from * 31 + to * 7 + static_cast<int>(i % 251));
  };
  rig.run([&](std::int32_t rank, Collectives& group) {
    for (const std::size_t unit : {0, 1, 500, 30000}) {
      const auto size_between = [&](std::int32_t from, std::int32_t to) {
        return unit * static_cast<std::size_t>((from + 2 * to) % 4);
      };
      std::vector<std::vector<std::byte>> out, in, all;
      std::vector<std::span<const std::byte>> out_spans;
      std::vector<std::span<std::byte>> in_spans, all_spans;
      for (std::int32_t peer = 0; peer < ranks(); ++peer) {
        auto& bytes = out.emplace_back(size_between(rank, peer));
        for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = byte_of(rank, peer, i);
        in.emplace_back(size_between(peer, rank));
        all.emplace_back(size_between(peer, 0));
      }
      for (std::int32_t peer = 0; peer < ranks(); ++peer) {
        out_spans.emplace_back(out[static_cast<std::size_t>(peer)]);
        in_spans.emplace_back(in[static_cast<std::size_t>(peer)]);
        all_spans.emplace_back(all[static_cast<std::size_t>(peer)]);
      }
      ASSERT_TRUE(group.all_to_all(Purpose::kEp, out_spans, in_spans).ok());
      ASSERT_TRUE(group.all_gather(Purpose::kSample, out.front(), all_spans).ok());
      for (std::int32_t peer = 0; peer < ranks(); ++peer) {
        const auto p = static_cast<std::size_t>(peer);
        for (std::size_t i = 0; i < in[p].size(); ++i) ASSERT_EQ(in[p][i], byte_of(peer, rank, i));
        for (std::size_t i = 0; i < all[p].size(); ++i) ASSERT_EQ(all[p][i], byte_of(peer, 0, i));
      }
    }
  });
}

TEST_P(CollectivesOver, BroadcastsAndSendsInOrder) {
  CarrierRig rig(options());
  rig.run([&](std::int32_t rank, Collectives& group) {
    for (std::int32_t root = 0; root < ranks(); ++root) {
      std::vector<int> values(5000, rank == root ? root + 5 : -1);
      ASSERT_TRUE(group.broadcast(Purpose::kPlan, root, std::as_writable_bytes(std::span(values))).ok());
      ASSERT_EQ(values, std::vector<int>(5000, root + 5));
    }
    for (int i = 0; i < 200; ++i) {
      int value = i;
      const auto bytes = std::as_writable_bytes(std::span(&value, 1));
      if (rank == 0) {
        ASSERT_TRUE(group.send(Purpose::kPp, 1, bytes).ok());
      } else if (rank == 1) {
        value = -1;
        ASSERT_TRUE(group.receive(Purpose::kPp, 0, bytes).ok());
        ASSERT_EQ(value, i);
      }
    }
  });
}

TEST_P(CollectivesOver, APeerThatDoesNotComeEndsAtTheDeadline) {
  RigOptions late = options();
  late.timeout = std::chrono::milliseconds(100);
  CarrierRig rig(late);
  rig.run(
      [&](std::int32_t, Collectives& group) {
        std::vector<float> values(3000, 1);
        const Status status = group.all_reduce(Purpose::kTp, values);
        EXPECT_FALSE(status.ok());
        EXPECT_FALSE(status.message().empty());
        // And what failed stays failed, with the first error.
        for (int again = 0; again < 2; ++again) {
          for (const Status& later :
               {group.all_reduce(Purpose::kTp, values),
                group.broadcast(Purpose::kPlan, 1, std::as_writable_bytes(std::span(values)))}) {
            EXPECT_EQ(later.code(), status.code());
            EXPECT_EQ(later.message(), status.message());
          }
        }
      },
      1);
}

TEST_P(CollectivesOver, AnAbortEndsEveryWait) {
  CarrierRig rig(options());
  std::atomic<int> failed{0};
  std::thread waiting([&] {
    rig.run(
        [&](std::int32_t rank, Collectives& group) {
          std::vector<float> values(30000, 1);
          const Status status =
              rank % 2 == 1 ? group.all_reduce(Purpose::kTp, values)
                            : group.receive(Purpose::kPp, 0, std::as_writable_bytes(std::span(values)));
          EXPECT_EQ(status.code(), ErrorCode::kUnavailable);
          // Over connections the others see no more than that they have closed.
          EXPECT_NE(
              status.message().find(GetParam().carrier == std::string("tcp") ? "rank " : "rank 0 is gone"),
              std::string::npos)
              << status.message();
          ++failed;
        },
        1);
  });
  rig.carrier(0).abort("rank 0 is gone");
  waiting.join();
  EXPECT_EQ(failed, ranks() - 1);
  std::vector<float> values(4, 1);
  EXPECT_FALSE(rig.collectives(0).all_reduce(Purpose::kTp, values).ok());
}

TEST_P(CollectivesOver, AMessageOfAnotherLengthIsAnError) {
  CarrierRig rig(options());
  rig.run([&](std::int32_t rank, Collectives& group) {
    std::vector<std::byte> bytes(rank == 0 ? 100 : 99);
    if (rank == 0) {
      EXPECT_TRUE(group.send(Purpose::kPp, 1, bytes).ok());
    } else if (rank == 1) {
      const Status status = group.receive(Purpose::kPp, 0, bytes);
      EXPECT_EQ(status.code(), ErrorCode::kCorrupt);
      EXPECT_EQ(status.message(), "rank 0 sent 100 bytes where rank 1 expected 99");
    }
  });
}

TEST_P(CollectivesOver, TheLedgerCountsWhatWasAsked) {
  CarrierRig rig(options());
  rig.run([&](std::int32_t rank, Collectives& group) {
    std::vector<float> values(1000, 1);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(group.all_reduce(Purpose::kTp, values).ok());
    const auto bytes = std::as_writable_bytes(std::span(values));
    const Status moved = rank == 0   ? group.send(Purpose::kPp, 1, bytes)
                         : rank == 1 ? group.receive(Purpose::kPp, 0, bytes)
                                     : Status();
    ASSERT_TRUE(moved.ok());
  });
  for (std::int32_t rank = 0; rank < ranks(); ++rank) {
    const Charge tp = rig.ledger(rank).totals(Purpose::kTp);
    EXPECT_EQ(tp.calls, 3U);
    EXPECT_EQ(tp.payload, 12000U);
    EXPECT_GE(tp.wire[0], 12000U);
    EXPECT_EQ(tp.wire[1], 0U);
    EXPECT_GT(tp.exposed, 0);
    const Charge pp = rig.ledger(rank).totals(Purpose::kPp);
    EXPECT_EQ(pp.calls, rank == 0 ? 1U : 0U);
    EXPECT_EQ(pp.payload, rank == 0 ? 4000U : 0U);
    EXPECT_EQ(rig.ledger(rank).totals(Purpose::kEp).calls, 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Carriers, CollectivesOver,
                         testing::Values(Setting{"fake", 2, 1}, Setting{"fake", 3, 1}, Setting{"fake", 5, 1},
                                         Setting{"shm", 2, 1}, Setting{"shm", 3, 1}, Setting{"shm", 5, 1},
                                         Setting{"shm", 2, 2}, Setting{"shm", 3, 2}, Setting{"tcp", 2, 1},
                                         Setting{"tcp", 3, 1}, Setting{"tcp", 5, 1}),
                         [](const auto& info) {
                           return std::string(info.param.carrier) + "_" + std::to_string(info.param.ranks) +
                                  "x" + std::to_string(info.param.lanes);
                         });

}  // namespace
}  // namespace shoal::comm
