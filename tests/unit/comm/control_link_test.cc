#include "comm/control_link.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <thread>

#include "comm/shm_meeting.h"

namespace shoal::comm {
namespace {

using wire::ClusterToken;
using wire::LinkPurpose;

std::pair<Socket, Socket> pair_of_sockets() {
  int fds[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
  return {Socket(fds[0]), Socket(fds[1])};
}

TimePoint soon() { return now() + std::chrono::seconds(20); }
TimePoint at_once() { return now() + std::chrono::milliseconds(50); }

ClusterToken token_of(const char* secret) { return *ClusterToken::parse(secret, "test"); }

TEST(ClusterToken, BoundsItsLengthAndTrimsIt) {
  EXPECT_EQ(token_of("  0123456789abcdef\n").secret(), "0123456789abcdef");
  EXPECT_FALSE(ClusterToken::parse("short", "file").ok());
  EXPECT_FALSE(ClusterToken::parse(std::string(5000, 'x'), "file").ok());
  EXPECT_FALSE(ClusterToken::load("/nonexistent/token").ok());
  EXPECT_NE(ClusterToken::draw()->secret(), ClusterToken::draw()->secret());
}

struct Opened {
  Status caller;
  Status callee;
};
Opened open_both(const ClusterToken& caller, const ClusterToken& callee, LinkPurpose caller_purpose,
                 LinkPurpose callee_purpose) {
  auto [a, b] = pair_of_sockets();
  Opened opened;
  std::thread other([&] {
    opened.callee = open_as_callee(b, callee, callee_purpose, soon());
    b.shut_down();
  });
  opened.caller = open_as_caller(a, caller, caller_purpose, soon());
  a.shut_down();
  other.join();
  return opened;
}

TEST(Opening, HoldersOfOneTokenMeet) {
  const auto token = token_of("0123456789abcdef");
  const Opened opened = open_both(token, token, LinkPurpose::kControl, LinkPurpose::kControl);
  EXPECT_TRUE(opened.caller.ok()) << opened.caller.message();
  EXPECT_TRUE(opened.callee.ok()) << opened.callee.message();
}

TEST(Opening, AnotherTokenIsRefusedWithASentence) {
  const Opened opened = open_both(token_of("0123456789abcdef"), token_of("another token here"),
                                  LinkPurpose::kControl, LinkPurpose::kControl);
  EXPECT_EQ(opened.caller.message(), "the peer holds another cluster token: start both with the same");
  EXPECT_FALSE(opened.callee.ok());
}

TEST(Opening, AnotherPurposeIsRefused) {
  const auto token = token_of("0123456789abcdef");
  EXPECT_FALSE(open_both(token, token, LinkPurpose::kCarrier, LinkPurpose::kControl).callee.ok());
}

// What one side said before is worth nothing to somebody who repeats it.
TEST(Opening, ARecordedProofIsWorthless) {
  const auto token = token_of("0123456789abcdef");
  const wire::Nonce caller{}, first{}, second{std::byte{1}};
  EXPECT_FALSE(wire::same_mac(token.caller_proof(LinkPurpose::kControl, caller, first),
                              token.caller_proof(LinkPurpose::kControl, caller, second)));
  EXPECT_FALSE(wire::same_mac(token.caller_proof(LinkPurpose::kControl, caller, first),
                              token.callee_proof(LinkPurpose::kControl, caller, first)));
}

TEST(Opening, GarbageAndSilenceEnd) {
  const auto token = token_of("0123456789abcdef");
  for (const char* garbage :
       {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\xff\xff\xff\xff\xff\xff\xff\xff\xff", ""}) {
    auto [a, b] = pair_of_sockets();
    ASSERT_TRUE(a.send(std::as_bytes(std::span(garbage, std::strlen(garbage))), soon()).ok());
    EXPECT_FALSE(open_as_callee(b, token, LinkPurpose::kControl, at_once()).ok()) << garbage;
  }
}

TEST(ControlLink, FramesArriveWholeAndInOrder) {
  auto [a, b] = pair_of_sockets();
  ControlLink left(std::move(a)), right(std::move(b));
  std::vector<std::byte> large(3 << 20);
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<std::byte>(i % 253);
  std::thread sender([&] {
    EXPECT_TRUE(left.send(wire::MessageType::kBeat).ok());
    EXPECT_TRUE(left.send(wire::MessageType::kPlan, large).ok());
    EXPECT_TRUE(left.send(wire::MessageType::kStop, std::span(large).first(100)).ok());
  });
  EXPECT_EQ(right.receive(soon())->type, wire::MessageType::kBeat);
  const auto plan = right.receive(soon());
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->body, large);
  EXPECT_EQ(right.receive(soon())->body.size(), 100U);
  sender.join();
  EXPECT_EQ(right.receive(at_once()).error().code(), ErrorCode::kDeadline);
  left.shut_down();
  EXPECT_EQ(right.receive(soon()).error().code(), ErrorCode::kUnavailable);
}

TEST(ControlLink, OtherVersionsAndImpossibleLengthsAreErrors) {
  const std::array<std::array<unsigned char, 8>, 2> headers = {{
      {0, 0, 0, 0, 17, 0, 2, 0},             // version 2
      {0xff, 0xff, 0xff, 0x7f, 20, 0, 1, 0}  // 2 GiB
  }};
  for (const auto& header : headers) {
    auto [a, b] = pair_of_sockets();
    ControlLink link(std::move(b));
    ASSERT_TRUE(a.send(std::as_bytes(std::span(header)), soon()).ok());
    EXPECT_EQ(link.receive(soon()).error().code(), ErrorCode::kCorrupt);
  }
}

// A frame that comes slowly but steadily takes longer than the silence that would end it.
TEST(ControlLink, AFrameThatMovesIsNoSilence) {
  constexpr std::chrono::milliseconds kLongestSilence{500};
  auto [a, b] = pair_of_sockets();
  ControlLink link(std::move(b));
  const std::vector<std::byte> body(1000, std::byte{7});
  std::chrono::nanoseconds largest_gap{0};
  std::thread sender([&] {
    const std::array<unsigned char, 8> header = {0xe8, 3, 0, 0, 20, 0, 1, 0};  // 1,000 bytes follow
    EXPECT_TRUE(a.send(std::as_bytes(std::span(header)), soon()).ok());
    std::span<const std::byte> rest(body);
    const TimePoint begin = now();
    for (TimePoint last = begin; now() - begin < 2 * kLongestSilence && rest.size() > 1;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (!a.send(rest.first(1), soon()).ok()) return;
      rest = rest.subspan(1);
      largest_gap = std::max<std::chrono::nanoseconds>(largest_gap, now() - last);
      last = now();
    }
    EXPECT_TRUE(a.send(rest, soon()).ok());
  });
  const auto frame = link.receive_unless_silent(kLongestSilence);
  link.shut_down();
  sender.join();
  if (!frame.ok() && largest_gap > kLongestSilence / 2) GTEST_SKIP() << "the sender was kept from sending";
  ASSERT_TRUE(frame.ok()) << frame.error().message();
  EXPECT_EQ(frame->body, body);
}

TEST(ControlLink, AFrameThatStopsHalfwayEndsInSilence) {
  for (const std::size_t sent : {0, 3, 8, 9}) {
    auto [a, b] = pair_of_sockets();
    ControlLink link(std::move(b));
    const std::array<unsigned char, 9> begun = {0xe8, 3, 0, 0, 20, 0, 1, 0, 7};
    ASSERT_TRUE(a.send(std::as_bytes(std::span(begun)).first(sent), soon()).ok());
    EXPECT_EQ(link.receive_unless_silent(std::chrono::milliseconds(50)).error().code(), ErrorCode::kDeadline);
    a.shut_down();
    EXPECT_EQ(link.receive_unless_silent(std::chrono::milliseconds(50)).error().code(),
              ErrorCode::kUnavailable);
  }
}

TEST(Endpoint, ParsesHostsAndPorts) {
  EXPECT_EQ(parse_endpoint("node1:80")->host, "node1");
  EXPECT_EQ(parse_endpoint("[::1]:8000")->host, "::1");
  EXPECT_EQ(parse_endpoint("[::1]:8000")->port, 8000);
  for (const char* bad : {"", "host", ":80", "host:", "host:0", "host:70000", "host:8x"})
    EXPECT_FALSE(parse_endpoint(bad).ok()) << bad;
}

TEST(Listener, TakesWhoConnectsAndGivesUpInTime) {
  auto listener = Listener::open("127.0.0.1", 0);
  ASSERT_TRUE(listener.ok());
  EXPECT_EQ(listener->accept(at_once()).error().code(), ErrorCode::kDeadline);
  auto caller = connect_to({"127.0.0.1", listener->port()}, soon());
  ASSERT_TRUE(caller.ok()) << caller.error().message();
  EXPECT_TRUE(listener->accept(soon()).ok());
}

// UBSan opens a pipe to see whether it may look at an object's type; without one it takes the object for
// broken.
#if defined(__SANITIZE_ADDRESS__)
#define SHOAL_NEEDS_NO_DESCRIPTORS() GTEST_SKIP() << "the sanitizer needs descriptors of its own"
#else
#define SHOAL_NEEDS_NO_DESCRIPTORS()
#endif

// Takes every descriptor that this process may still open.
class NoDescriptors {
 public:
  NoDescriptors() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const int lowest_free = ::dup(STDERR_FILENO);
    EXPECT_GT(lowest_free, 0);
    ::close(lowest_free);
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(lowest_free);
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoDescriptors() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }
  NoDescriptors(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

TEST(Listener, WhoComesWhileDescriptorsAreOutIsTakenLater) {
  SHOAL_NEEDS_NO_DESCRIPTORS();
  auto listener = Listener::open("127.0.0.1", 0);
  ASSERT_TRUE(listener.ok());
  auto caller = connect_to({"127.0.0.1", listener->port()}, soon());
  ASSERT_TRUE(caller.ok()) << caller.error().message();
  {
    const NoDescriptors none;
    const auto refused = listener->accept(at_once());
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code(), ErrorCode::kDeadline);
    EXPECT_EQ(refused.error().message(), "no connection can be taken: Too many open files");
  }
  EXPECT_TRUE(listener->accept(soon()).ok());
}

TEST(Listener, ShuttingDownEndsThePauseToo) {
  SHOAL_NEEDS_NO_DESCRIPTORS();
  for (const bool abstract : {false, true}) {
    auto listener = abstract ? Listener::open_abstract("shoal-test-pause-" + std::to_string(::getpid()))
                             : Listener::open("127.0.0.1", 0);
    ASSERT_TRUE(listener.ok());
    const NoDescriptors none;
    std::thread waiting([&] {
      EXPECT_EQ(listener->accept(now() + std::chrono::hours(1)).error().code(), ErrorCode::kUnavailable);
    });
    listener->shut_down();
    waiting.join();
  }
}

TEST(ShmMeeting, RanksOfAHostGetTheSameMemory) {
  ShmLayout layout;
  layout.ranks = 2;
  layout.groups = {{0, 1}};
  auto segment = ShmSegment::create(layout);
  ASSERT_TRUE(segment.ok());
  auto host = ShmHost::open(*segment, *ShmHost::draw_name());
  ASSERT_TRUE(host.ok()) << host.error().message();
  auto other = attach_segment((*host)->name(), layout, soon());
  ASSERT_TRUE(other.ok()) << other.error().message();
  (*segment)->abort("seen by both");
  EXPECT_EQ((*other)->abort_reason(), "seen by both");
  layout.ring_bytes *= 2;
  EXPECT_EQ(attach_segment((*host)->name(), layout, soon()).error().code(), ErrorCode::kCorrupt);
  EXPECT_FALSE(attach_segment("shoal-nobody", layout, at_once()).ok());
  EXPECT_EQ(host_identity(), host_identity());
}

}  // namespace
}  // namespace shoal::comm
