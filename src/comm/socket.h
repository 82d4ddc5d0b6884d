// Stream sockets between the processes of a cluster: every wait has a deadline.
//
// Thread-safety: a Socket belongs to one thread, but one may send while another receives, and shut_down() may
//   be called from any.
// Ownership: owns its descriptor.
// Errors: kUnavailable where the peer is gone, kDeadline where it is silent; sentences without addresses,
//   which the caller knows.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "core/clock.h"
#include "core/expected.h"

namespace shoal::comm {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();

  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }

  Status send(std::span<const std::byte> bytes, TimePoint deadline);
  Status receive(std::span<std::byte> bytes, TimePoint deadline);
  // What can be moved now, 0 where nothing can: for callers with waits of their own.
  Expected<std::size_t> send_some(std::span<const std::byte> bytes);
  Expected<std::size_t> receive_some(std::span<std::byte> bytes);
  // Until there is something to read (or the end of it).
  Status await_readable(TimePoint deadline) const;
  Status await_writable(TimePoint deadline) const;
  // From now on a peer whose kernel is silent for some 4 s ends the connection, also one that nothing is sent
  // to.
  void probe_when_silent() const;
  // The address by which the peer was reached, as digits: where it can reach back. Empty where it has none.
  std::string local_host() const;
  // The peer's address as digits, "HOST:PORT"; empty where it has none.
  std::string peer() const;
  // Both directions, for good: waits on either side end.
  void shut_down() const;

 private:
  int fd_ = -1;
};

// "HOST:PORT", "[::1]:PORT". Fails with kInvalidArgument naming the text.
struct Endpoint {
  std::string host;
  std::uint16_t port = 0;
};
Expected<Endpoint> parse_endpoint(const std::string& text);
std::string to_string(const Endpoint& endpoint);

// Non-blocking, without delay for small messages. The sentence names the address.
Expected<Socket> connect_to(const Endpoint& endpoint, TimePoint deadline);

class Listener {
 public:
  // port 0 takes a free one.
  static Expected<Listener> open(const std::string& host, std::uint16_t port);
  // The abstract Unix socket of this name (without the leading zero byte).
  static Expected<Listener> open_abstract(const std::string& name);

  std::uint16_t port() const { return port_; }
  // kDeadline where nobody came, or could be taken: who has come waits while this process or the machine is
  // out of descriptors or memory, which is tried again every 100 ms.
  Expected<Socket> accept(TimePoint deadline);
  // accept() ends with kUnavailable, also one that waits.
  void shut_down();

 private:
  Listener(Socket socket, std::uint16_t port) : socket_(std::move(socket)), port_(port) {}
  Socket socket_;
  std::uint16_t port_ = 0;
  // Behind a pointer, so that listeners move.
  std::unique_ptr<std::atomic<bool>> closed_ = std::make_unique<std::atomic<bool>>(false);
};

}  // namespace shoal::comm
