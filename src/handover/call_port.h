// A port at which ranks of decode workers call for KV: lets in who holds the cluster token, and gives each
// caller a thread.
//
// Thread-safety: start() and destruction belong to the owner; the handler runs on the callers' threads, and
//   must end soon after its link has been aborted.
// Ownership: owns listener, connections and threads; all have ended when the destructor returns.
// Invariants: a caller gets nothing before it has proved to hold the token; at most kMostOpenings are in
//   their opening, of more the oldest goes; at most kMostCallers are served.

#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "comm/socket.h"
#include "core/expected.h"
#include "handover/room_link.h"
#include "handover/thread_group.h"
#include "wire/cluster_token.h"

namespace shoal::handover {

class CallPort {
 public:
  static constexpr std::size_t kMostOpenings = 64;
  static constexpr std::size_t kMostCallers = 1024;
  // The caller's first frame; its body is still to be received. A failure is a stranger's: it is logged.
  using Handler = std::function<Status(RoomLink&, const RoomLink::Frame&)>;

  static Expected<std::unique_ptr<CallPort>> start(const comm::Endpoint& listen,
                                                   std::shared_ptr<const wire::ClusterToken> token,
                                                   Handler handler);
  ~CallPort();
  CallPort(const CallPort&) = delete;
  CallPort& operator=(const CallPort&) = delete;

  std::uint16_t port() const { return listener_.port(); }

 private:
  CallPort(comm::Listener listener, std::shared_ptr<const wire::ClusterToken> token, Handler handler);
  void accept();
  void answer(RoomLink& link);
  Status open(RoomLink& link);

  comm::Listener listener_;
  const std::shared_ptr<const wire::ClusterToken> token_;
  const Handler handler_;
  std::mutex mutex_;
  std::set<RoomLink*> links_;
  std::list<RoomLink*> openings_;  // of them, those that have not said what they want, oldest first
  bool stopping_ = false;
  ThreadGroup threads_;
  std::thread acceptor_;
};

}  // namespace shoal::handover
