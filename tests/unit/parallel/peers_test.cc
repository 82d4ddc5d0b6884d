#include "parallel/peers.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "comm/fake_carrier.h"
#include "comm/shm_carrier.h"

namespace shoal::parallel {
namespace {

TEST(Degrees, TensorAndPipelineAreServed) {
  EXPECT_TRUE(check_degrees({}).ok());
  EXPECT_TRUE(check_degrees({.tp = 3, .pp = 2}).ok());
}

TEST(Degrees, OthersAreRefusedByName) {
  for (const auto& [name, degrees] :
       {std::pair{"dp 4", Degrees{.dp = 4}}, {"ep 2", Degrees{.tp = 2, .ep = 2}}}) {
    const Status status = check_degrees(degrees);
    EXPECT_EQ(status.code(), ErrorCode::kUnsupported);
    EXPECT_EQ(status.message().find(name), 0U) << status.message();
  }
}

TEST(Peers, TheFirstFailureSticksAndEndsTheRest) {
  auto carriers = comm::FakeNetwork::carriers(2);
  comm::Ledger ledger;
  Peers peers(*Layout::make({.tp = 2}), 0, *carriers[0], ledger, {std::chrono::milliseconds(20)});
  float values[4] = {1, 2, 3, 4};
  peers.sum(MatrixView<float>(values, 2, 2));
  EXPECT_EQ(peers.status().code(), ErrorCode::kDeadline);
  const std::string first = peers.status().message();
  carriers[1]->abort("another reason");
  peers.send_ids(std::vector<TokenId>{1});
  EXPECT_EQ(peers.status().message(), first);
}

// tp 2, pp 2: hidden states go from stage to stage, ids from the last stage's first rank to both of the
// first.
TEST(Peers, HandsOnHiddenStatesAndIds) {
  const Layout layout = *Layout::make({.tp = 2, .pp = 2});
  auto carriers = comm::FakeNetwork::carriers(4);
  std::vector<std::thread> threads;
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      comm::Ledger ledger;
      Peers peers(layout, rank, *carriers[static_cast<std::size_t>(rank)], ledger);
      EXPECT_EQ(peers.sampling_rank(), 2);
      // Rows of 3 in a stride of 5.
      std::vector<float> x(10, static_cast<float>(rank));
      const MatrixView<float> view(x.data(), 2, 3, 5);
      if (peers.first_stage()) {
        peers.send_hidden(view);
        std::vector<TokenId> ids(3);
        peers.receive_ids(ids);
        EXPECT_EQ(ids, (std::vector<TokenId>{7, 8, 9}));
        const auto charge = ledger.totals(comm::Purpose::kPp);
        EXPECT_EQ(charge.calls, 1U);
        EXPECT_EQ(charge.payload, 8 * sizeof(float));
      } else {
        peers.receive_hidden(view);
        EXPECT_EQ(x[0], static_cast<float>(rank - 2));
        EXPECT_EQ(x[7], static_cast<float>(rank - 2));
        if (peers.samples()) {
          peers.send_ids(std::vector<TokenId>{7, 8, 9});
        } else {
          std::vector<TokenId> ids(3);
          peers.receive_ids(ids);
          EXPECT_EQ(ids, (std::vector<TokenId>{7, 8, 9}));
        }
      }
      EXPECT_TRUE(peers.status().ok()) << peers.status().message();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Peers, GathersAndTellsInsideATensorGroup) {
  const Layout layout = *Layout::make({.tp = 3});
  auto carriers = comm::FakeNetwork::carriers(3);
  std::vector<std::thread> threads;
  for (std::int32_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      comm::Ledger ledger;
      Peers peers(layout, rank, *carriers[static_cast<std::size_t>(rank)], ledger);
      // Of different lengths, one of them nothing.
      const std::vector<std::byte> mine(static_cast<std::size_t>(rank == 1 ? 0 : 3 * rank), std::byte{9});
      std::vector<std::vector<std::byte>> boxes = {{}, {}, std::vector<std::byte>(6)};
      std::vector<std::span<std::byte>> theirs(boxes.begin(), boxes.end());
      peers.gather_to_first(mine, theirs);
      std::vector<std::byte> told = {rank == 0 ? std::byte{5} : std::byte{0}};
      peers.tell_group(told);
      ASSERT_TRUE(peers.status().ok());
      EXPECT_EQ(told[0], std::byte{5});
      if (rank == 0) {
        EXPECT_EQ(boxes[2], std::vector<std::byte>(6, std::byte{9}));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Each of two coordinates to the other.
struct Words {
  explicit Words(std::int32_t own) : mine(3, std::byte(own)), theirs(3, std::byte{9}) {
    out = {{1 - own, mine}};
    in = {{1 - own, theirs}};
  }
  std::vector<std::byte> mine, theirs;
  std::vector<comm::Outgoing> out;
  std::vector<comm::Incoming> in;
};

template <typename F>
void on_two_coordinates(std::vector<std::unique_ptr<comm::Carrier>> carriers, F&& f) {
  std::vector<std::thread> threads;
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      comm::Ledger ledger;
      Peers peers(*Layout::make({.cp = 2}), rank, *carriers[static_cast<std::size_t>(rank)], ledger);
      f(rank, peers, ledger);
      EXPECT_TRUE(peers.status().ok()) << peers.status().message();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Peers, ExchangesWhileTheirCallerComputes) {
  on_two_coordinates(comm::FakeNetwork::carriers(2), [](std::int32_t rank, Peers& peers, auto& ledger) {
    Words first(rank), third(rank);
    peers.begin_exchange(comm::Purpose::kCpRing, first.out, first.in, 1);
    peers.begin_exchange(comm::Purpose::kCpRing, {}, {}, 0);
    peers.begin_exchange(comm::Purpose::kCpRing, third.out, third.in, 1);
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(peers.exchanging());
      peers.await_exchange();
    }
    EXPECT_FALSE(peers.exchanging());
    peers.await_exchange();
    EXPECT_EQ(first.theirs, std::vector<std::byte>(3, std::byte(1 - rank)));
    EXPECT_EQ(third.theirs, first.theirs);
    EXPECT_EQ(ledger.totals(comm::Purpose::kCpRing).payload, 6U);
    EXPECT_EQ(ledger.totals(comm::Purpose::kCpRing).calls, 2U);
    // The carrier is this thread's again.
    Words last(rank);
    peers.exchange(comm::Purpose::kCpMerge, last.out, last.in, 1);
    EXPECT_EQ(last.theirs, first.theirs);
  });
}

TEST(Peers, AnExchangeThatWasBegunEndsWithTheCarrier) {
  auto carriers = comm::FakeNetwork::carriers(2);
  comm::Ledger ledger;
  Peers peers(*Layout::make({.cp = 2}), 0, *carriers[0], ledger);
  Words words(0);
  peers.begin_exchange(comm::Purpose::kCpRing, words.out, words.in, 1);
  carriers[1]->abort("gone");
  peers.await_exchange();
  EXPECT_EQ(peers.status().code(), ErrorCode::kUnavailable);
  peers.begin_exchange(comm::Purpose::kCpRing, words.out, words.in, 1);
  peers.await_exchange();
  EXPECT_FALSE(peers.exchanging());
}

// A carrier that keeps nothing for who does not receive yet sends nothing early.
TEST(Peers, SendEarlyWhatTheCarrierKeeps) {
  const auto exchange = [](bool early) {
    return [early](std::int32_t rank, Peers& peers, auto& ledger) {
      Words words(rank);
      EXPECT_EQ(peers.send_early(comm::Purpose::kCpMerge, words.out, 1), early);
      if (early) words.out.clear();
      peers.exchange(comm::Purpose::kCpMerge, words.out, words.in, early ? 0 : 1);
      EXPECT_EQ(words.theirs, std::vector<std::byte>(3, std::byte(1 - rank)));
      EXPECT_EQ(ledger.totals(comm::Purpose::kCpMerge).calls, 1U);
      EXPECT_EQ(ledger.totals(comm::Purpose::kCpMerge).payload, 3U);
      // More than it keeps.
      const std::vector<std::byte> much(comm::ShmLayout().ring_bytes);
      const comm::Outgoing out{1 - rank, much};
      EXPECT_FALSE(peers.send_early(comm::Purpose::kCpMerge, std::span(&out, 1), 1));
    };
  };
  on_two_coordinates(comm::FakeNetwork::carriers(2), exchange(false));
  comm::ShmLayout layout;
  layout.ranks = 2;
  auto segment = comm::ShmSegment::create(layout);
  ASSERT_TRUE(segment.ok());
  std::vector<std::unique_ptr<comm::Carrier>> carriers;
  for (std::int32_t rank = 0; rank < 2; ++rank)
    carriers.push_back(std::make_unique<comm::ShmCarrier>(*segment, rank, comm::ShmCarrier::Options{}));
  on_two_coordinates(std::move(carriers), exchange(true));
}

}  // namespace
}  // namespace shoal::parallel
