#include "comm/tcp_mesh.h"

#include <gtest/gtest.h>

#include <thread>

#include "comm/control_link.h"
#include "wire/bytes.h"

namespace shoal::comm {
namespace {

TimePoint soon() { return now() + std::chrono::seconds(20); }

// Rank 0 of two awaits rank 1 while others come to its port.
class TcpMesh : public testing::Test {
 protected:
  // What rank 0 gets, after `first` has been at its port.
  template <typename F>
  Expected<std::vector<Socket>> meet(F&& first) {
    Expected<std::vector<Socket>> zero = Status(ErrorCode::kInternal, "not run");
    std::thread rank_zero([&] { zero = connect_mesh(0, endpoints_, listener_, token_, Epoch(3), soon()); });
    first();
    Listener own = *Listener::open("127.0.0.1", 0);
    auto one = connect_mesh(1, endpoints_, own, token_, Epoch(3), soon());
    EXPECT_TRUE(one.ok()) << one.status().message();
    rank_zero.join();
    return zero;
  }
  Socket caller() { return *connect_to(endpoints_[0], soon()); }

  Listener listener_ = *Listener::open("127.0.0.1", 0);
  std::vector<Endpoint> endpoints_ = {{"127.0.0.1", listener_.port()}, {"127.0.0.1", 1}};
  wire::ClusterToken token_ = *wire::ClusterToken::draw();
};

TEST_F(TcpMesh, RanksMeet) {
  const auto sockets = meet([] {});
  ASSERT_TRUE(sockets.ok()) << sockets.error().message();
  EXPECT_FALSE((*sockets)[0].open());
  EXPECT_TRUE((*sockets)[1].open());
}

TEST_F(TcpMesh, GarbageStrangersAndOtherEpochsAreWaitedPast) {
  const auto sockets = meet([&] {
    Socket garbage = caller();
    EXPECT_TRUE(garbage.send(std::as_bytes(std::span("nonsense nonsense nonsense")), soon()).ok());
    Socket stranger = caller();
    EXPECT_FALSE(
        open_as_caller(stranger, *wire::ClusterToken::draw(), wire::LinkPurpose::kCarrier, soon()).ok());
    // A rank of an older epoch, then one that is not awaited, then one that is not meant.
    for (const auto& [epoch, from, to] : {std::tuple{2, 1, 0}, {3, 7, 0}, {3, 1, 5}}) {
      Socket other = caller();
      ASSERT_TRUE(open_as_caller(other, token_, wire::LinkPurpose::kCarrier, soon()).ok());
      wire::ByteWriter attach;
      attach.put(static_cast<std::uint64_t>(epoch));
      attach.put(static_cast<std::int32_t>(from));
      attach.put(static_cast<std::int32_t>(to));
      ASSERT_TRUE(other.send(attach.take(), soon()).ok());
      std::byte byte{};
      EXPECT_EQ(other.receive(std::span(&byte, 1), soon()).code(), ErrorCode::kUnavailable);
    }
  });
  ASSERT_TRUE(sockets.ok()) << sockets.error().message();
  EXPECT_TRUE((*sockets)[1].open());
}

// More than a rank's time for all of them, were they answered one after the other.
TEST_F(TcpMesh, SilentStrangersKeepNobodyWaiting) {
  std::vector<Socket> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(caller());
  const TimePoint begin = now();
  const auto sockets = meet([] {});
  ASSERT_TRUE(sockets.ok()) << sockets.error().message();
  EXPECT_LT(seconds_between(begin, now()), 4);
}

TEST_F(TcpMesh, ARankThatDoesNotComeIsNamed) {
  const auto missing =
      connect_mesh(0, endpoints_, listener_, token_, Epoch(1), now() + std::chrono::milliseconds(50));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().message(), "1 ranks have not called rank 0: the peer is silent");
}

// A rank that is stopped is reached, but does not answer: its system takes the call.
TEST_F(TcpMesh, ACallAtHandCanBeShutDown) {
  Listener own = *Listener::open("127.0.0.1", 0);
  bool over = false;
  const auto cut = connect_mesh(1, endpoints_, own, token_, Epoch(1), soon(), [&](const Socket* call) {
    over = call == nullptr;
    if (call != nullptr) call->shut_down();
  });
  ASSERT_FALSE(cut.ok());
  EXPECT_EQ(cut.error().code(), ErrorCode::kUnavailable);
  EXPECT_TRUE(over);
}

}  // namespace
}  // namespace shoal::comm
