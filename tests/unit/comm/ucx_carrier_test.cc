#include "comm/ucx_carrier.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "carrier_rig.h"

namespace shoal::comm {
namespace {

// Ranks as threads, over UCX's TCP on the loopback interface.
class UcxOverLoopback : public testing::Test {
 protected:
  void SetUp() override {
    if (!UcxCarrier::built()) GTEST_SKIP() << "built without UCX (Debian: libucx-dev)";
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    GTEST_SKIP() << "UCX takes memory and signals in ways that the sanitizers do not know";
#endif
  }

  template <typename F>
  static void on_every_rank(std::int32_t ranks, F&& f) {
    // They go together: what a rank sent last may be lost with it.
    std::vector<std::unique_ptr<UcxCarrier>> carriers(static_cast<std::size_t>(ranks));
    meet_over_loopback(ranks, [&](std::int32_t rank, std::vector<Socket> mesh) {
      auto carrier = UcxCarrier::connect(rank, std::move(mesh), {"lo", 0}, now() + std::chrono::seconds(60));
      ASSERT_TRUE(carrier.ok()) << carrier.error().message();
      auto& kept = carriers[static_cast<std::size_t>(rank)] = *std::move(carrier);
      f(rank, *kept);
    });
  }
};

TEST_F(UcxOverLoopback, SumsAndGathers) {
  on_every_rank(3, [](std::int32_t rank, Carrier& carrier) {
    Ledger ledger;
    Collectives group(carrier, whole_group(3, rank), ledger, {});
    for (const std::size_t n : {0, 1, 1000, 8192, 700'000}) {
      std::vector<float> values(n, static_cast<float>(rank + 1));
      const Status status = group.all_reduce(Purpose::kTp, values);
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_EQ(values, std::vector<float>(n, 6)) << n;
    }
    std::vector<std::vector<std::byte>> all = {std::vector<std::byte>(1), std::vector<std::byte>(0),
                                               std::vector<std::byte>(300'000)};
    const std::vector<std::byte> mine(all[static_cast<std::size_t>(rank)].size(), std::byte(rank + 1));
    const std::vector<std::span<std::byte>> places(all.begin(), all.end());
    ASSERT_TRUE(group.all_gather(Purpose::kSample, mine, places).ok());
    EXPECT_EQ(all[0], std::vector<std::byte>(1, std::byte{1}));
    EXPECT_EQ(all[2], std::vector<std::byte>(300'000, std::byte{3}));
  });
}

TEST_F(UcxOverLoopback, AMessageOfAnotherLengthIsAnErrorOnBothSides) {
  for (const std::size_t sent : {9, 11}) {
    on_every_rank(2, [&](std::int32_t rank, Carrier& carrier) {
      Ledger ledger;
      Collectives::Options options;
      options.timeout = std::chrono::seconds(20);
      Collectives group(carrier, whole_group(2, rank), ledger, options);
      std::vector<std::byte> bytes(rank == 0 ? sent : 10);
      if (rank == 0) {
        ASSERT_TRUE(group.send(Purpose::kPp, 1, bytes).ok());
        EXPECT_EQ(group.receive(Purpose::kPp, 1, bytes).code(), ErrorCode::kUnavailable);
      } else {
        EXPECT_EQ(group.receive(Purpose::kPp, 0, bytes).code(), ErrorCode::kCorrupt);
        EXPECT_EQ(group.send(Purpose::kPp, 0, bytes).code(), ErrorCode::kCorrupt);
      }
    });
  }
}

TEST_F(UcxOverLoopback, ADeadlineEndsAWait) {
  on_every_rank(2, [](std::int32_t rank, Carrier& carrier) {
    Ledger ledger;
    Collectives::Options options;
    options.timeout = std::chrono::milliseconds(200);
    Collectives group(carrier, whole_group(2, rank), ledger, options);
    std::byte byte{};
    // Both wait, neither sends. The first to give up aborts the other.
    const Status status = group.receive(Purpose::kPp, 1 - rank, std::span(&byte, 1));
    EXPECT_TRUE(status.code() == ErrorCode::kDeadline || status.code() == ErrorCode::kUnavailable)
        << status.message();
  });
}

TEST_F(UcxOverLoopback, AnAbortEndsWaits) {
  on_every_rank(2, [](std::int32_t rank, Carrier& carrier) {
    Ledger ledger;
    Collectives::Options options;
    options.timeout = std::chrono::seconds(20);
    Collectives group(carrier, whole_group(2, rank), ledger, options);
    std::byte byte{};
    if (rank == 0) {
      carrier.abort("enough");
      EXPECT_EQ(group.receive(Purpose::kPp, 1, std::span(&byte, 1)).message(), "enough");
    } else {
      EXPECT_EQ(group.receive(Purpose::kPp, 0, std::span(&byte, 1)).code(), ErrorCode::kUnavailable);
    }
  });
}

TEST_F(UcxOverLoopback, AnUnknownInterfaceIsRefusedByName) {
  const auto carrier = UcxCarrier::connect(0, std::vector<Socket>(1), {"nosuch0", 0}, now());
  ASSERT_FALSE(carrier.ok());
  EXPECT_EQ(carrier.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(carrier.error().message().find("nosuch0"), std::string::npos) << carrier.error().message();
}

}  // namespace
}  // namespace shoal::comm
