#include "comm/async_collectives.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "carrier_rig.h"
#include "comm/fault_carrier.h"

namespace shoal::comm {
namespace {

class AsyncOver : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    RigOptions options;
    options.carrier = GetParam();
    options.ranks = kRanks;
    rig_ = std::make_unique<CarrierRig>(options);
  }
  template <typename F>
  void on_every_rank(F&& f) {
    std::vector<std::thread> threads;
    for (std::int32_t rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        AsyncCollectives group(rig_->carrier(rank), whole_group(kRanks, rank), rig_->ledger(rank), {});
        f(rank, group);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  static constexpr std::int32_t kRanks = 3;
  std::unique_ptr<CarrierRig> rig_;
};

// Every kind of call, all on their way before any is waited for, and waited for out of order.
TEST_P(AsyncOver, CallsRunInOrderWhileTheirCallerDoesOtherThings) {
  on_every_rank([&](std::int32_t rank, AsyncCollectives& group) {
    std::vector<float> sums(5000, static_cast<float>(rank + 1));
    auto summed = group.all_reduce(Purpose::kTp, sums);

    const std::vector<std::int64_t> counts = {1, 2, 3};
    const std::vector<float> scattered(6, static_cast<float>(rank + 1));
    std::vector<float> kept(static_cast<std::size_t>(counts[static_cast<std::size_t>(rank)]));
    auto reduced = group.reduce_scatter(Purpose::kTp, counts, scattered, kept);

    // Each rank brings one byte more than the one before.
    std::array<std::vector<std::byte>, kRanks> gathered;
    std::vector<std::span<std::byte>> places;
    for (std::size_t r = 0; r < kRanks; ++r) places.emplace_back(gathered[r] = std::vector<std::byte>(r + 1));
    const std::vector<std::byte> mine(static_cast<std::size_t>(rank + 1), std::byte(rank));
    auto all = group.all_gather(Purpose::kSample, mine, places);

    std::array<std::byte, kRanks> out{}, in{};
    std::vector<std::span<const std::byte>> outs;
    std::vector<std::span<std::byte>> ins;
    for (std::size_t r = 0; r < kRanks; ++r) {
      out[r] = static_cast<std::byte>(10 * static_cast<std::size_t>(rank) + r);
      outs.emplace_back(&out[r], 1);
      ins.emplace_back(&in[r], 1);
    }
    auto turned = group.all_to_all(Purpose::kEp, outs, ins);

    std::array<std::byte, 4> told{};
    if (rank == 1) told.fill(std::byte{7});
    auto broadcast = group.broadcast(Purpose::kPlan, 1, told);

    std::byte passed{static_cast<unsigned char>(rank)};
    auto moved = rank == 0   ? group.send(Purpose::kPp, 1, std::span(&passed, 1))
                 : rank == 1 ? group.receive(Purpose::kPp, 0, std::span(&passed, 1))
                             : group.all_reduce(Purpose::kTp, std::span<float>());
    if (rank != 2) {
      auto empty = group.all_reduce(Purpose::kTp, std::span<float>());
      ASSERT_TRUE(empty.wait().ok());
    }
    // A word to the next, with the one before's.
    const std::byte word{static_cast<unsigned char>(40 + rank)};
    std::byte heard{};
    const Outgoing to_next{(rank + 1) % kRanks, std::span(&word, 1)};
    const Incoming from_last{(rank + 2) % kRanks, std::span(&heard, 1)};
    auto exchanged = group.exchange(Purpose::kCpRing, std::span(&to_next, 1), std::span(&from_last, 1), 1);
    ASSERT_TRUE(exchanged.wait().ok());
    EXPECT_EQ(heard, std::byte(40 + (rank + 2) % kRanks));
    ASSERT_TRUE(moved.wait().ok());
    ASSERT_TRUE(broadcast.wait().ok());
    ASSERT_TRUE(turned.wait().ok());
    ASSERT_TRUE(all.wait().ok());
    ASSERT_TRUE(reduced.wait().ok());
    EXPECT_TRUE(summed.done());
    ASSERT_TRUE(summed.wait().ok());

    EXPECT_EQ(sums, std::vector<float>(5000, 6));
    EXPECT_EQ(kept, std::vector<float>(kept.size(), 6));
    for (std::size_t r = 0; r < kRanks; ++r) {
      EXPECT_EQ(gathered[r], std::vector<std::byte>(r + 1, std::byte(r)));
      EXPECT_EQ(in[r], static_cast<std::byte>(10 * r + static_cast<std::size_t>(rank)));
    }
    EXPECT_EQ(told, (std::array{std::byte{7}, std::byte{7}, std::byte{7}, std::byte{7}}));
    EXPECT_EQ(passed, static_cast<std::byte>(rank == 1 ? 0 : rank));
    const Charge charge = rig_->ledger(rank).totals(Purpose::kTp);
    EXPECT_EQ(charge.calls, 3U);
    EXPECT_EQ(charge.payload, 5000 * sizeof(float) + 6 * sizeof(float));
    // It ran while this thread waited for others: none of it was waited for here.
    EXPECT_GT(charge.hidden, 0);
  });
}

INSTANTIATE_TEST_SUITE_P(Carriers, AsyncOver, testing::Values("fake", "shm", "tcp"));

// A rank that is cut off fails by itself; those that wait for it, by their deadline. Nothing hangs.
TEST(AsyncCollectives, AFaultEndsEveryCallOnEveryRank) {
  auto carriers = FakeNetwork::carriers(2);
  FaultCarrier cut(
      std::move(carriers[1]),
      std::make_shared<FaultPlan>(std::vector<Fault>{{.nth = 2, .rank = 1, .action = FaultAction::kCut}}));
  std::vector<std::thread> threads;
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Ledger ledger;
      Carrier& carrier = rank == 0 ? *carriers[0] : cut;
      Collectives::Options options;
      options.timeout = std::chrono::milliseconds(200);
      AsyncCollectives group(carrier, whole_group(2, rank), ledger, options);
      std::vector<float> first(10, 1), second(10, 1), third(10, 1);
      auto one = group.all_reduce(Purpose::kTp, first);
      auto two = group.all_reduce(Purpose::kTp, second);
      auto three = group.all_reduce(Purpose::kTp, third);
      EXPECT_TRUE(one.wait().ok());
      EXPECT_EQ(first, std::vector<float>(10, 2));
      EXPECT_FALSE(two.wait().ok());
      EXPECT_FALSE(three.wait().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace shoal::comm
