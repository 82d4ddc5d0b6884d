// The prefill side of a worker, at its head: decode workers call here for prompts that are computed here, and
// are told which ranks send what (rank_port.h).
//
// Thread-safety: every function may be called from any thread.
// Ownership: owns its port and the threads of its connections; rooms are shared with the engine. Must be
//   destroyed before the engine, whose departures outlive it.
// Invariants: docs/wire.md, section 8.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "comm/socket.h"
#include "core/expected.h"
#include "engine/handover_leg.h"
#include "handover/call_port.h"
#include "handover/rank_ports.h"
#include "handover/rooms.h"
#include "handover/terms.h"

namespace shoal::handover {

class DepartingRoom;

class Sender {
 public:
  struct Options {
    comm::Endpoint listen{"127.0.0.1", 0};  // where decode workers call; port 0: a free one
    std::string build;
    Checksums checksums = Checksums::kSampled;
  };
  // ports: has equipped the engine.
  static Expected<std::unique_ptr<Sender>> start(engine::Engine& engine, std::shared_ptr<RankPorts> ports,
                                                 Options options);
  ~Sender();
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  std::uint16_t port() const { return port_->port(); }
  // For a request with this prompt. Refuses a room that is in use or was, and ones without end.
  Expected<std::shared_ptr<engine::Departure>> depart(RoomId room, std::span<const TokenId> prompt);
  // Its request is not wanted any more: ends it where it is, and refuses it should it come.
  void abandon(RoomId room) { rooms_->abandon(room); }
  RoomStats stats() const { return rooms_->stats(); }

 private:
  Sender(engine::Engine& engine, std::shared_ptr<RankPorts> ports, Options options);
  // A caller that has proved who it is.
  Status answer(RoomLink& link, const RoomLink::Frame& frame);
  std::shared_ptr<DepartingRoom> await_departure(RoomLink& link, RoomId room);
  Status push(RoomLink& link, DepartingRoom& room, const wire::Room& asked);
  Status accept(RoomLink& link, DepartingRoom& room, const wire::Room& asked);

  engine::Engine& engine_;
  const std::shared_ptr<RankPorts> ports_;
  const Options options_;
  const wire::HandoverTerms terms_;
  const std::shared_ptr<Rooms> rooms_;
  std::mutex mutex_;
  std::multimap<RoomId, RoomLink*> waiting_;  // for a departure that is not here yet
  bool stopping_ = false;
  std::unique_ptr<CallPort> port_;
};

}  // namespace shoal::handover
