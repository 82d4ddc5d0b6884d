// The prefill side of a worker: decode workers call here for the KV of prompts that are computed here.
//
// Thread-safety: every function may be called from any thread.
// Ownership: owns its port, the connections and their threads; rooms are shared with the engine. Must be
//   destroyed before the engine, whose departures outlive it.
// Invariants: docs/wire.md, section 8. A caller gets nothing before it has proved to hold the cluster token;
//   at most 64 callers are in their opening, at most kMostCallers are served.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>

#include "comm/socket.h"
#include "core/expected.h"
#include "engine/handover_leg.h"
#include "handover/rooms.h"
#include "handover/terms.h"
#include "wire/cluster_token.h"

namespace shoal::handover {

class DepartingRoom;

class Sender {
 public:
  static constexpr std::size_t kMostCallers = 1024;

  struct Options {
    std::string host = "127.0.0.1";  // where decode workers call
    std::uint16_t port = 0;          // 0: a free one
    std::string build;
    std::shared_ptr<const wire::ClusterToken> token;
    Checksums checksums = Checksums::kSampled;
  };
  static Expected<std::unique_ptr<Sender>> start(engine::Engine& engine, Options options);
  ~Sender();
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  std::uint16_t port() const { return listener_.port(); }
  // For a request with this prompt. Refuses a room that is in use or was, and ones without end.
  Expected<std::shared_ptr<engine::Departure>> depart(RoomId room, std::span<const TokenId> prompt);
  // Its request is not wanted any more: ends it where it is, and refuses it should it come.
  void abandon(RoomId room) { rooms_->abandon(room); }
  RoomStats stats() const { return rooms_->stats(); }

 private:
  Sender(engine::Engine& engine, Options options, comm::Listener listener);
  void accept();
  // opened: that it is through with its opening, whatever came of it.
  void answer(RoomLink& link, bool& opened);
  Expected<wire::Room> open(RoomLink& link);
  std::shared_ptr<DepartingRoom> await_departure(RoomLink& link, RoomId room);
  Status push(RoomLink& link, DepartingRoom& room, const wire::Room& asked);

  engine::Engine& engine_;
  const Options options_;
  const wire::HandoverTerms terms_;
  comm::Listener listener_;
  const std::shared_ptr<Rooms> rooms_;
  std::mutex mutex_;
  std::set<RoomLink*> links_;                 // all of them
  std::size_t openings_ = 0;                  // of them, without a proof yet
  std::multimap<RoomId, RoomLink*> waiting_;  // for a departure that is not here yet
  bool stopping_ = false;
  std::thread acceptor_;
};

}  // namespace shoal::handover
