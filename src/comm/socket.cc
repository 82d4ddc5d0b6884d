#include "comm/socket.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <memory>

#include "core/log.h"

namespace shoal::comm {
namespace {

Status gone(const char* what) {
  return {ErrorCode::kUnavailable,
          errno == 0 ? "the connection was closed" : fmt::format("{}: {}", what, std::strerror(errno))};
}

// False where the deadline came first.
bool await(int fd, short events, TimePoint deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now()).count();
    pollfd poll_fd{fd, events, 0};
    const int ready = ::poll(&poll_fd, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return true;  // the call that follows says what it is
    if (left <= 0) return false;
  }
}

// Until descriptors or memory are looked for again: nobody is told when some are free.
constexpr std::chrono::milliseconds kPause{100};

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Expected<Addresses> resolve(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code != 0)
    return Status(ErrorCode::kInvalidArgument, fmt::format("{}: {}", host, ::gai_strerror(code)));
  return Addresses(found, &::freeaddrinfo);
}

void no_delay(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

void Socket::probe_when_silent() const {
  const auto set = [this](int level, int option, int value) {
    ::setsockopt(fd_, level, option, &value, sizeof value);
  };
  // Three probes, a second apart, after a second of silence. A Unix socket refuses, no harm.
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

Status Socket::send(std::span<const std::byte> bytes, TimePoint deadline) {
  while (!bytes.empty()) {
    SHOAL_ASSIGN(n, send_some(bytes));
    bytes = bytes.subspan(n);
    if (n == 0) SHOAL_TRY(await_writable(deadline));
  }
  return {};
}

Status Socket::receive(std::span<std::byte> bytes, TimePoint deadline) {
  while (!bytes.empty()) {
    SHOAL_ASSIGN(n, receive_some(bytes));
    bytes = bytes.subspan(n);
    if (n == 0) SHOAL_TRY(await_readable(deadline));
  }
  return {};
}

Expected<std::size_t> Socket::send_some(std::span<const std::byte> bytes) {
  const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n >= 0) return static_cast<std::size_t>(n);
  if (would_block()) return std::size_t{0};
  return gone("sending failed");
}

Expected<std::size_t> Socket::receive_some(std::span<std::byte> bytes) {
  if (bytes.empty()) return std::size_t{0};  // recv() of nothing looks like the end
  const ssize_t n = ::recv(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (n > 0) return static_cast<std::size_t>(n);
  if (n < 0 && would_block()) return std::size_t{0};
  if (n == 0) errno = 0;
  return gone("receiving failed");
}

Status Socket::await_readable(TimePoint deadline) const {
  if (!await(fd_, POLLIN, deadline)) return {ErrorCode::kDeadline, "the peer is silent"};
  return {};
}

Status Socket::await_writable(TimePoint deadline) const {
  if (!await(fd_, POLLOUT, deadline)) return {ErrorCode::kDeadline, "the peer takes nothing more"};
  return {};
}

std::string Socket::local_host() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  char host[NI_MAXHOST] = {};
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof host, nullptr, 0,
                    NI_NUMERICHOST) != 0)
    return {};
  return host;
}

std::string Socket::peer() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getpeername(fd_, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  char host[NI_MAXHOST] = {};
  char port[NI_MAXSERV] = {};
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return {};
  return fmt::format(fmt::runtime(address.ss_family == AF_INET6 ? "[{}]:{}" : "{}:{}"), host, port);
}

void Socket::shut_down() const { ::shutdown(fd_, SHUT_RDWR); }

Expected<Endpoint> parse_endpoint(const std::string& text) {
  const auto bad = [&] {
    return Status(ErrorCode::kInvalidArgument, fmt::format("'{}' is not an address HOST:PORT", text));
  };
  const auto colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return bad();
  Endpoint endpoint;
  endpoint.host = text.substr(0, colon);
  if (endpoint.host.front() == '[' && endpoint.host.back() == ']')
    endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  const char* begin = text.data() + colon + 1;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(begin, end, endpoint.port);
  if (error != std::errc() || at != end || endpoint.port == 0) return bad();
  return endpoint;
}

std::string to_string(const Endpoint& endpoint) {
  const bool is_v6 = endpoint.host.find(':') != std::string::npos;
  return is_v6 ? fmt::format("[{}]:{}", endpoint.host, endpoint.port)
               : fmt::format("{}:{}", endpoint.host, endpoint.port);
}

Expected<Socket> connect_to(const Endpoint& endpoint, TimePoint deadline) {
  SHOAL_ASSIGN(addresses, resolve(endpoint.host, endpoint.port, 0));
  std::string reason = "no address";
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    Socket socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol));
    if (!socket.open()) continue;
    if (::connect(socket.fd(), at->ai_addr, at->ai_addrlen) != 0 && errno != EINPROGRESS) {
      reason = std::strerror(errno);
      continue;
    }
    int error = 0;
    socklen_t size = sizeof error;
    if (!await(socket.fd(), POLLOUT, deadline)) {
      reason = "no answer";
      continue;
    }
    ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
      reason = std::strerror(error);
      continue;
    }
    no_delay(socket.fd());
    return socket;
  }
  return Status(ErrorCode::kUnavailable,
                fmt::format("{}:{} cannot be reached: {}", endpoint.host, endpoint.port, reason));
}

Expected<Listener> Listener::open(const std::string& host, std::uint16_t port) {
  SHOAL_ASSIGN(addresses, resolve(host, port, AI_PASSIVE));
  const addrinfo* at = addresses.get();
  Socket socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol));
  const int on = 1;
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (!socket.open() || ::bind(socket.fd(), at->ai_addr, at->ai_addrlen) != 0 ||
      ::listen(socket.fd(), 128) != 0)
    return Status(ErrorCode::kIo,
                  fmt::format("cannot listen on {}:{}: {}", host, port, std::strerror(errno)));
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  ::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&bound), &size);
  const std::uint16_t network = bound.ss_family == AF_INET6
                                    ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                    : reinterpret_cast<const sockaddr_in&>(bound).sin_port;
  return Listener(std::move(socket), ntohs(network));
}

Expected<Listener> Listener::open_abstract(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof address.sun_path)
    return Status(ErrorCode::kInternal, "the name of a socket is too long");
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  Socket socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (!socket.open() || ::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(socket.fd(), 128) != 0)
    return Status(ErrorCode::kIo, fmt::format("no local socket: {}", std::strerror(errno)));
  return Listener(std::move(socket), 0);
}

void Listener::shut_down() {
  closed_->store(true);
  // Wakes who waits. A Unix socket that is shut down reads as ready and accepts nobody, hence the flag.
  socket_.shut_down();
}

Expected<Socket> Listener::accept(TimePoint deadline) {
  std::string refused;
  for (;;) {
    if (closed_->load()) return Status(ErrorCode::kUnavailable, "the listener is closed");
    Socket socket(::accept4(socket_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.open()) {
      no_delay(socket.fd());  // no harm to a Unix socket, which refuses it
      return socket;
    }
    // A caller that gave up meanwhile is nobody.
    if (would_block() || errno == ECONNABORTED) {
      SHOAL_TRY(socket_.await_readable(deadline));
      continue;
    }
    if (refused.empty()) {
      refused = fmt::format("no connection can be taken: {}", std::strerror(errno));
      log(LogLevel::kWarn, "listener.pause", "error=\"{}\"", refused);
    }
    if (now() >= deadline) return Status(ErrorCode::kDeadline, refused);
    // Whoever waits to be taken keeps the socket readable; only shut_down() ends this pause.
    await(socket_.fd(), 0, std::min(deadline, now() + kPause));
  }
}

}  // namespace shoal::comm
