// A control connection between the head and a rank: framed messages after a proven opening (docs/wire.md,
// sections 1 and 2).
//
// Thread-safety: send() may be called from any thread; receive() belongs to one; shut_down() to any.
// Ownership: owns the socket.
// Invariants: frames go out whole and in order. After an error the link is of no use and says so again.

#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "comm/socket.h"
#include "core/expected.h"
#include "wire/cluster_token.h"
#include "wire/rank_messages.h"

namespace shoal::comm {

struct ControlFrame {
  wire::MessageType type = wire::MessageType::kBeat;
  std::vector<std::byte> body;
};

// Both sides prove that they hold the token; afterwards the socket is at the first byte of what follows.
Status open_as_caller(Socket& socket, const wire::ClusterToken& token, wire::LinkPurpose purpose,
                      TimePoint deadline);
Status open_as_callee(Socket& socket, const wire::ClusterToken& token, wire::LinkPurpose purpose,
                      TimePoint deadline);

class ControlLink {
 public:
  explicit ControlLink(Socket socket) : socket_(std::move(socket)) {}

  // Fails with kDeadline where the peer takes not a byte for 5 s.
  Status send(wire::MessageType type, std::span<const std::byte> body = {});
  // Fails with kDeadline where not a whole frame came by then, kCorrupt where it is none.
  Expected<ControlFrame> receive(TimePoint deadline);
  // However long the frame takes: fails with kDeadline only after `silence` without a byte. Time in which
  // this process was stopped does not count.
  Expected<ControlFrame> receive_unless_silent(std::chrono::milliseconds silence);
  void shut_down() const { socket_.shut_down(); }
  std::string local_host() const { return socket_.local_host(); }

 private:
  Socket socket_;
  std::mutex sending_;
};

}  // namespace shoal::comm
