#include "comm/tcp_carrier.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace shoal::comm {
namespace {

// Handed to the kernel at once: from a warm buffer twice as fast as 16 MiB at once.
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

// Of a peer's kernel, while something is on its way to it: as of a rank on its control connection.
constexpr std::chrono::seconds kSilence{3};
// Between two looks at links that do not move.
constexpr std::chrono::milliseconds kLook{500};

// BBR spaces packets out by a clock, which a network inside a cluster need not have: over loopback sums took
// twice as long, and a message of 1 MiB 190 us instead of 95. Reno is in every kernel and open to everybody.
void send_unpaced(int fd) {
  char algorithm[16] = {};  // TCP_CA_NAME_MAX
  socklen_t size = sizeof algorithm;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, algorithm, &size) != 0) return;
  if (!std::string_view(algorithm).starts_with("bbr")) return;
  for (const std::string_view other : {"cubic", "reno"}) {
    if (::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, other.data(), static_cast<socklen_t>(other.size())) ==
        0)
      return;
  }
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

// What is left of a message of which `at` bytes have gone, header first; at most a piece of its body.
struct Rest {
  iovec parts[2];
  msghdr message{};

  Rest(std::byte* header, std::size_t header_bytes, std::byte* body, std::size_t body_bytes, std::size_t at) {
    const std::size_t from_header = std::min(at, header_bytes);
    const std::size_t from_body = at - from_header;
    parts[0] = {header + from_header, header_bytes - from_header};
    parts[1] = {body + from_body, std::min(body_bytes - from_body, kPieceBytes)};
    message.msg_iov = parts[0].iov_len > 0 ? parts : parts + 1;
    message.msg_iovlen = parts[0].iov_len > 0 ? 2 : 1;
  }
};

}  // namespace

TcpCarrier::TcpCarrier(std::int32_t rank, std::vector<Socket> sockets, Options options)
    : rank_(rank), peers_(sockets.size()), options_(options) {
  for (std::size_t i = 0; i < sockets.size(); ++i) {
    if (sockets[i].open()) {
      sockets[i].probe_when_silent();
      send_unpaced(sockets[i].fd());
    }
    peers_[i].socket = std::move(sockets[i]);
  }
}

void TcpCarrier::abort(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_ = reason.empty() ? "aborted" : reason;
  }
  aborted_.store(true);
  for (const Peer& peer : peers_) {
    if (peer.socket.open()) peer.socket.shut_down();
  }
}

std::string TcpCarrier::abort_reason() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}

Status TcpCarrier::lost(std::int32_t peer, const char* how) const {
  if (aborted_.load()) return {ErrorCode::kUnavailable, abort_reason()};
  return {ErrorCode::kUnavailable, fmt::format("rank {} {}: {}", peer, how,
                                               errno == 0 ? "it closed its carrier" : std::strerror(errno))};
}

Expected<bool> TcpCarrier::send_some(const Outgoing& out, Progress& progress) {
  Peer& peer = peers_[static_cast<std::size_t>(out.peer)];
  if (progress.at == 0) {
    const std::uint64_t header[2] = {peer.sent, out.bytes.size()};
    std::memcpy(progress.header.data(), header, kHeaderBytes);
  }
  Rest rest(progress.header.data(), kHeaderBytes, const_cast<std::byte*>(out.bytes.data()), out.bytes.size(),
            progress.at);
  const ssize_t n = ::sendmsg(peer.socket.fd(), &rest.message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n < 0) {
    if (would_block()) return false;
    return lost(out.peer, "takes nothing");
  }
  progress.at += static_cast<std::size_t>(n);
  progress.done = progress.at == kHeaderBytes + out.bytes.size();
  if (progress.done) ++peer.sent;
  return n > 0;
}

Expected<bool> TcpCarrier::receive_some(const Incoming& in, Progress& progress) {
  Peer& peer = peers_[static_cast<std::size_t>(in.peer)];
  Rest rest(progress.header.data(), kHeaderBytes, in.bytes.data(), in.bytes.size(), progress.at);
  const ssize_t n = ::recvmsg(peer.socket.fd(), &rest.message, MSG_DONTWAIT);
  if (n < 0 && would_block()) return false;
  if (n <= 0) {
    if (n == 0) errno = 0;
    return lost(in.peer, "sends nothing");
  }
  const bool had_header = progress.at >= kHeaderBytes;
  progress.at += static_cast<std::size_t>(n);
  if (!had_header && progress.at >= kHeaderBytes) {
    std::uint64_t header[2];
    std::memcpy(header, progress.header.data(), kHeaderBytes);
    if (header[0] != peer.received)
      return Status(ErrorCode::kCorrupt, fmt::format("rank {} sent message {} where rank {} expected {}",
                                                     in.peer, header[0], rank_, peer.received));
    if (header[1] != in.bytes.size())
      return Status(ErrorCode::kCorrupt, fmt::format("rank {} sent {} bytes where rank {} expected {}",
                                                     in.peer, header[1], rank_, in.bytes.size()));
  }
  progress.done = progress.at == kHeaderBytes + in.bytes.size();
  if (progress.done) ++peer.received;
  return true;
}

Status TcpCarrier::transfer(std::span<const Outgoing> out, std::span<const Incoming> in, TimePoint deadline) {
  if (failed_.ok() && aborted_.load()) failed_ = Status(ErrorCode::kUnavailable, abort_reason());
  if (failed_.ok()) {
    failed_ = move_all(out, in, deadline);
    // The others see the connections close.
    if (!failed_.ok()) abort(failed_.message());
  }
  return failed_;
}

Status TcpCarrier::move_all(std::span<const Outgoing> out, std::span<const Incoming> in, TimePoint deadline) {
  sending_.assign(out.size(), {});
  receiving_.assign(in.size(), {});
  const int looks = spinning_ ? options_.looks : 0;
  int idle = 0;
  TimePoint since{};  // when something moved last; set once nothing does
  for (;;) {
    bool moved = false, done = true;
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (sending_[i].done) continue;
      done = false;
      if (waits_its_turn(out, sending_, i)) continue;
      SHOAL_ASSIGN(some, send_some(out[i], sending_[i]));
      moved |= some;
    }
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (receiving_[i].done) continue;
      done = false;
      if (waits_its_turn(in, receiving_, i)) continue;
      SHOAL_ASSIGN(some, receive_some(in[i], receiving_[i]));
      moved |= some;
    }
    if (done) return {};
    if (moved) {
      idle = 0;
    } else if (++idle > looks) {
      if (idle == looks + 1) since = now();
      SHOAL_TRY(sleep(out, in, since, deadline));
    }
  }
}

// The kernel probes only where nothing is under way.
Status TcpCarrier::check_link(std::int32_t peer) const {
  tcp_info info{};
  socklen_t size = sizeof info;
  const int fd = peers_[static_cast<std::size_t>(peer)].socket.fd();
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || info.tcpi_unacked == 0) return {};
  if (std::chrono::milliseconds(info.tcpi_last_ack_recv) < kSilence) return {};
  return {ErrorCode::kUnavailable,
          fmt::format("rank {} has acknowledged nothing for {} s", peer, kSilence.count())};
}

// Until one of the sockets that are waited for can go on.
Status TcpCarrier::sleep(std::span<const Outgoing> out, std::span<const Incoming> in, TimePoint since,
                         TimePoint deadline) {
  std::vector<pollfd> waits;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (!sending_[i].done)
      waits.push_back({peers_[static_cast<std::size_t>(out[i].peer)].socket.fd(), POLLOUT, 0});
  }
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (!receiving_[i].done)
      waits.push_back({peers_[static_cast<std::size_t>(in[i].peer)].socket.fd(), POLLIN, 0});
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now()).count();
  if (left <= 0) return {ErrorCode::kDeadline, "a rank waited for another until its deadline"};
  ::poll(waits.data(), waits.size(), static_cast<int>(std::min<std::int64_t>(left, kLook.count())));
  if (now() - since < kSilence) return {};
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i].socket.open()) SHOAL_TRY(check_link(static_cast<std::int32_t>(i)));
  }
  return {};
}

}  // namespace shoal::comm
