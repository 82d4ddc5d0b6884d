// A client of plain sockets for tests: it sends exactly the bytes it is told to, however wrong they are.
//
// Thread-safety: one thread per client.
// Every wait ends after `kPatience`; what has come until then is returned.

#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

namespace shoal::wire {

inline constexpr std::chrono::seconds kPatience{20};

class RawClient {
 public:
  explicit RawClient(std::uint16_t port, int receive_buffer = 0) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_buffer > 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return connected_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  // Closes with a reset instead of a farewell.
  void reset() {
    const linger hard{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close();
  }
  void close_sending_side() { ::shutdown(fd_, SHUT_WR); }

  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  // Everything received so far, once it contains `mark`, or the server closed, or patience ended.
  const std::string& read_until(std::string_view mark, std::size_t from = 0) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (received_.find(mark, from) == std::string::npos && !closed_ && receive_some(deadline)) {
    }
    return received_;
  }
  const std::string& read_to_close() {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!closed_ && receive_some(deadline)) {
    }
    return received_;
  }
  // Bytes or the server's farewell are there to be read.
  bool readable() const {
    pollfd poll_fd{fd_, POLLIN, 0};
    return ::poll(&poll_fd, 1, 0) > 0;
  }
  bool closed_by_server() const { return closed_; }

 private:
  bool receive_some(std::chrono::steady_clock::time_point deadline) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd poll_fd{fd_, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&poll_fd, 1, static_cast<int>(left.count())) <= 0) return false;
    char bytes[16384];
    const ssize_t size = ::recv(fd_, bytes, sizeof bytes, 0);
    if (size <= 0) {
      closed_ = true;
      return false;
    }
    received_.append(bytes, static_cast<std::size_t>(size));
    return true;
  }

  int fd_ = -1;
  bool connected_ = false;
  bool closed_ = false;
  std::string received_;
};

// Waits for a condition another thread brings about.
inline bool eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < deadline) {
    if (condition()) return true;
    std::this_thread::yield();
  }
  return condition();
}

}  // namespace shoal::wire
