#include "comm/mixed_carrier.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "carrier_rig.h"
#include "comm/fake_carrier.h"

namespace shoal::comm {
namespace {

// Ranks 0 and 2 on one host, 1 and 3 on another: as the stages of tp 2 x pp 2 dealt across hosts.
constexpr std::int32_t kRanks = 4;

struct Mixed {
  std::vector<std::unique_ptr<Carrier>> network = FakeNetwork::carriers(kRanks, 1 << 12);
  std::vector<std::unique_ptr<Carrier>> hosts[2];
  std::vector<std::unique_ptr<Carrier>> ranks;

  Mixed() {
    for (auto& host : hosts) host = FakeNetwork::carriers(kRanks, 1 << 12);
    for (std::int32_t rank = 0; rank < kRanks; ++rank) {
      std::vector<bool> near;
      for (std::int32_t each = 0; each < kRanks; ++each) near.push_back(each % 2 == rank % 2);
      const auto at = static_cast<std::size_t>(rank);
      ranks.push_back(std::make_unique<MixedCarrier>(std::move(network[at]), std::move(hosts[rank % 2][at]),
                                                     std::move(near)));
    }
  }
  template <typename F>
  void run(F&& f) {
    std::vector<std::thread> threads;
    for (std::int32_t rank = 0; rank < kRanks; ++rank)
      threads.emplace_back([&, rank] { f(rank, *ranks[static_cast<std::size_t>(rank)]); });
    for (std::thread& thread : threads) thread.join();
  }
};

TimePoint soon() { return now() + std::chrono::seconds(30); }

std::string text(std::int32_t from, std::int32_t to, std::size_t bytes) {
  std::string made = "from " + std::to_string(from) + " to " + std::to_string(to) + " ";
  while (made.size() < bytes) made += static_cast<char>('a' + made.size() % 26);
  made.resize(bytes);
  return made;
}

// Everybody to everybody in one call, more than may wait anywhere.
TEST(MixedCarrier, MovesBothWaysInOneCall) {
  Mixed mixed;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{100}, std::size_t{100'000}}) {
    mixed.run([&](std::int32_t rank, Carrier& carrier) {
      std::vector<std::string> sent(kRanks), got(kRanks);
      std::vector<Outgoing> out;
      std::vector<Incoming> in;
      for (std::int32_t peer = 0; peer < kRanks; ++peer) {
        if (peer == rank) continue;
        const auto at = static_cast<std::size_t>(peer);
        sent[at] = text(rank, peer, bytes);
        got[at].resize(bytes);
        out.push_back({peer, std::as_bytes(std::span(sent[at]))});
        in.push_back({peer, std::as_writable_bytes(std::span(got[at]))});
      }
      ASSERT_TRUE(carrier.transfer(out, in, soon()).ok());
      for (std::int32_t peer = 0; peer < kRanks; ++peer) {
        if (peer == rank) continue;
        EXPECT_EQ(got[static_cast<std::size_t>(peer)], text(peer, rank, bytes));
      }
    });
  }
}

// What stays on the host does not touch the network, and the other way round.
TEST(MixedCarrier, EachPairHasOneWay) {
  Mixed mixed;
  mixed.ranks[0]->abort("rank 0 is gone");
  // Ranks 1 and 3 share a host that nobody has harmed.
  std::thread other([&] {
    std::string got(5, ' ');
    const Incoming in{1, std::as_writable_bytes(std::span(got))};
    EXPECT_TRUE(mixed.ranks[3]->transfer({}, std::span(&in, 1), soon()).ok());
    EXPECT_EQ(got, "hello");
  });
  const std::string word = "hello";
  const Outgoing out{3, std::as_bytes(std::span(word))};
  EXPECT_TRUE(mixed.ranks[1]->transfer(std::span(&out, 1), {}, soon()).ok());
  other.join();
  // Rank 2 shares one with rank 0: both its ways are closed.
  const Outgoing near{0, std::as_bytes(std::span(word))}, far{1, std::as_bytes(std::span(word))};
  EXPECT_EQ(mixed.ranks[2]->transfer(std::span(&near, 1), {}, soon()).code(), ErrorCode::kUnavailable);
  EXPECT_EQ(mixed.ranks[2]->transfer(std::span(&far, 1), {}, soon()).code(), ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace shoal::comm
