// The decode side of a worker, at its head: gets the KV of prompts that a prefill worker computes, each of
// its ranks what it needs of it (rank_port.h).
//
// Thread-safety: every function may be called from any thread.
// Ownership: owns the HTTP client that looks up where prefill workers are called; rooms are shared with the
//   engine. Must be destroyed before the engine, whose arrivals outlive it.
// Invariants: docs/wire.md, section 8. A byte is placed only in a page that is reserved for its room.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/expected.h"
#include "engine/handover_leg.h"
#include "handover/allowed_hosts.h"
#include "handover/rank_ports.h"
#include "handover/rooms.h"
#include "handover/terms.h"
#include "wire/http_client.h"

namespace shoal::handover {

// Where a prefill worker answers GET /route.
struct Bootstrap {
  std::string host;
  std::uint16_t port = 8998;
};

class Receiver {
 public:
  struct Options {
    std::string build;
    Checksums checksums = Checksums::kSampled;
    // Pages of prefill ranks on the same host are read where they lie, where the system allows it.
    bool direct = true;
    // Prefill workers that requests may name.
    AllowedHosts prefill_hosts = {};
  };
  // What the threads of rooms work with.
  struct Ground {
    explicit Ground(Options options) : options(std::move(options)) {}
    const Options options;
    wire::HandoverTerms terms;
    wire::HttpClient http;
  };

  // ports: has equipped the engine.
  Receiver(engine::Engine& engine, std::shared_ptr<RankPorts> ports, Options options);
  ~Receiver();
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  // Refuses a room that is in use or was, ones without end, and a prefill worker that is not allowed.
  Expected<std::shared_ptr<engine::Arrival>> arrive(RoomId room, Bootstrap prefill);
  // Its request is not wanted any more: ends it where it is, and refuses it should it come.
  void abandon(RoomId room) { rooms_->abandon(room); }
  RoomStats stats() const { return rooms_->stats(); }

 private:
  const std::shared_ptr<Ground> ground_;
  const std::shared_ptr<RankPorts> ports_;
  const std::shared_ptr<Rooms> rooms_;
};

}  // namespace shoal::handover
