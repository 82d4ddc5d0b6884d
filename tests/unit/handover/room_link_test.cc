#include "handover/room_link.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

namespace shoal::handover {
namespace {

using wire::MessageType;

// A link and the other end of its connection, of which nothing is read unless a test does.
struct Link {
  Link() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    ours = *RoomLink::make(comm::Socket(ends[0]));
    theirs = comm::Socket(ends[1]);
  }
  std::unique_ptr<RoomLink> ours;
  comm::Socket theirs;
};

// Seconds until the link says that its peer is gone; `meanwhile` is done between its waits.
template <typename F>
double seconds_until_gone(Link& link, F&& meanwhile) {
  const TimePoint began = now();
  while (seconds_between(began, now()) < 10) {
    const auto frame = link.ours->await_frame();
    if (!frame.ok()) {
      EXPECT_EQ(frame.error().code(), ErrorCode::kUnavailable);
      break;
    }
    meanwhile();
  }
  return seconds_between(began, now());
}

// As while a prompt is computed chunk by chunk for a process that was stopped: its kernel takes what is sent.
TEST(RoomLink, APeerThatOnlyTakesIsGoneAfterASilence) {
  Link link;
  std::atomic<bool> over{false};
  std::thread chunks([&] {
    while (!over.load()) {
      link.ours->wake();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  const std::vector<std::byte> body(16);
  const double seconds =
      seconds_until_gone(link, [&] { EXPECT_TRUE(link.ours->send(MessageType::kWrite, body).ok()); });
  over.store(true);
  chunks.join();
  EXPECT_GE(seconds, 1.2);
  EXPECT_LT(seconds, 3.5);  // and a busy machine's own time
}

TEST(RoomLink, APeerThatBeatsStays) {
  Link link;
  std::atomic<bool> over{false};
  auto other = *RoomLink::make(std::move(link.theirs));
  std::thread peer([&] {
    while (!over.load()) (void)other->await_word(std::chrono::milliseconds(100));
  });
  std::thread waker([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2200));
    link.ours->wake();
  });
  const auto frame = link.ours->await_frame();
  EXPECT_TRUE(frame.ok() && !*frame);
  over.store(true);
  peer.join();
  waker.join();
}

}  // namespace
}  // namespace shoal::handover
