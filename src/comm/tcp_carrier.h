// The carrier between ranks that share no memory: one TCP connection for every two ranks.
//
// Thread-safety: as Carrier.
// Ownership: owns the connections.
// Invariants:
//   1. A message is read straight into the place posted for it; what nobody has asked for stays in the socket
//      and holds the sender back. Messages of a pair are numbered from 0; a gap is an error.
//   2. A transfer over a link that is cut fails within 5 s: the kernel asks a silent peer's kernel every
//      second, and what was sent and is not acknowledged is looked after here. A peer that is only slow, or
//      stopped, has a kernel that answers.

#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "comm/carrier.h"
#include "comm/socket.h"

namespace shoal::comm {

class TcpCarrier : public Carrier {
 public:
  struct Options {
    // Looks at the sockets before sleeping: about 0.3 us each, so 300 are the 100 us that a rank usually
    // waits for a slower one. 0 where ranks and threads are more than cores.
    int looks = 300;
  };

  // sockets: by rank, attached (tcp_mesh.h); this rank's own place is empty.
  TcpCarrier(std::int32_t rank, std::vector<Socket> sockets, Options options);

  std::int32_t rank() const override { return rank_; }
  std::int32_t ranks() const override { return static_cast<std::int32_t>(peers_.size()); }
  const char* name() const override { return "tcp"; }
  Status transfer(std::span<const Outgoing> out, std::span<const Incoming> in, TimePoint deadline) override;
  void set_spinning(bool spinning) override { spinning_ = spinning; }
  void abort(const std::string& reason) override;
  SharedSum* shared_sum(const Group&) override { return nullptr; }

 private:
  static constexpr std::size_t kHeaderBytes = 16;  // number, length
  using Header = std::array<std::byte, kHeaderBytes>;

  struct Peer {
    Socket socket;
    std::uint64_t sent = 0;  // messages
    std::uint64_t received = 0;
  };
  struct Progress {
    std::size_t at = 0;  // from the start of the header
    bool done = false;
    Header header{};
  };

  Status move_all(std::span<const Outgoing> out, std::span<const Incoming> in, TimePoint deadline);
  Expected<bool> send_some(const Outgoing& out, Progress& progress);
  Expected<bool> receive_some(const Incoming& in, Progress& progress);
  // since: when something moved last.
  Status sleep(std::span<const Outgoing> out, std::span<const Incoming> in, TimePoint since,
               TimePoint deadline);
  Status check_link(std::int32_t peer) const;
  Status lost(std::int32_t peer, const char* how) const;
  std::string abort_reason() const;

  std::int32_t rank_;
  std::vector<Peer> peers_;
  Options options_;
  bool spinning_ = true;
  Status failed_;
  std::vector<Progress> sending_;
  std::vector<Progress> receiving_;
  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;
  std::string reason_;
};

}  // namespace shoal::comm
