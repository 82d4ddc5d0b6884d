// What moves KV in one rank: on a prefill worker it lets ranks of decode workers call and writes to them what
// is computed here; on a decode worker it fetches what its head asks for. It does as its head says, in words
// (wire/handover_messages.h), and says what became of it.
//
// Thread-safety: as engine::RankService; serve() on the threads of a CallPort.
// Ownership: owns its port, rooms and threads; connections that serve() is given are the caller's.
// Invariants: docs/wire.md, section 8. Once take() of a word that closes a room has returned, and once end()
//   has, no byte of its pages is touched here.

#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>

#include "engine/rank_service.h"
#include "handover/call_port.h"
#include "handover/departing_pages.h"
#include "handover/landing_pages.h"
#include "handover/thread_group.h"
#include "wire/cluster_token.h"

namespace shoal::handover {

class RankPort final : public engine::RankService {
 public:
  explicit RankPort(std::shared_ptr<const wire::ClusterToken> token) : token_(std::move(token)) {}
  ~RankPort() override;

  Status begin(Begin begin) override;
  void end() override;
  void take(std::span<const std::byte> word) override;
  void computed(const engine::ComputedPages& pages) override;

  // A caller whose first frame was `fetch`: until everything that it wants is with it. Fails where it asks
  // for what is not here.
  Status serve(RoomLink& link, const RoomLink::Frame& frame);

 private:
  Status take_word(wire::RankWord word);
  Status land(wire::RankWord word);
  void end_room(RoomId room, const wire::RankWord& word);
  // Once it has begun.
  std::string own_host();
  std::shared_ptr<DepartingPages> departing(RoomId room);
  std::shared_ptr<DepartingPages> await_departing(RoomLink& link, RoomId room);
  Status push(RoomLink& link, DepartingPages& room, wire::Fetch fetch);
  Expected<bool> offer(RoomLink& link, const RankPools& pools, PagePush& pages);
  Status push_all(RoomLink& link, DepartingPages& room, PagePush& pages);
  void charge(const RoomLink& link, RoomId room, const PagePush& pages, double exposed);
  void fetch(LandingPages& room, const wire::RankWord::Source& source);
  // Where pages are read from, and how long that took; nothing where their bytes are sent.
  struct Reading {
    std::optional<PageLanding::Direct> from;
    double seconds = 0;
  };
  Status read(RoomLink& link, LandingPages& room, Reading& reading);
  void charge(const Reading& reading);
  Status await_confirmation(RoomLink& link, LandingPages& room);
  void say(wire::RankWord::Kind kind, RoomId room, std::string text = {});

  const std::shared_ptr<const wire::ClusterToken> token_;
  std::unique_ptr<CallPort> port_;

  // Held, shared, while something is said.
  std::shared_mutex telling_;
  bool telling_allowed_ = false;

  std::mutex mutex_;
  std::shared_ptr<const Begin> begun_;
  bool serving_ = false;
  // Of begun_; lives as long as a connection looks at it.
  std::shared_ptr<const RankPools> pools_;
  std::map<RoomId, std::shared_ptr<DepartingPages>> departing_;
  std::map<RoomId, std::shared_ptr<LandingPages>> landing_;
  ThreadGroup threads_;
};

}  // namespace shoal::handover
