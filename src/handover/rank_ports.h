// The head's view of what moves KV in its ranks: its own port, the words that go to all of them, where each
// may be called.
//
// Thread-safety: equip(), serve() and stop() belong to the owner, in this order; the rest may be called from
//   any thread.
// Ownership: shared by whoever made it, the rooms, and the engine that it has equipped.
// Invariants: after stop() neither the engine nor the rooms are called.

#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/expected.h"
#include "engine/engine.h"
#include "handover/rank_port.h"
#include "wire/cluster_token.h"
#include "wire/handover_messages.h"

namespace shoal::handover {

class Rooms;

class RankPorts : public std::enable_shared_from_this<RankPorts> {
 public:
  explicit RankPorts(std::shared_ptr<const wire::ClusterToken> token)
      : token_(token), own_(std::make_shared<RankPort>(std::move(token))) {}
  RankPorts(const RankPorts&) = delete;
  RankPorts& operator=(const RankPorts&) = delete;

  // Before the engine starts. role: "prefill" or "decode". listen: where ranks of this host may be called;
  // rank r on port + r, where there is a port.
  void equip(engine::EngineOptions& options, std::string role, comm::Endpoint listen);
  // From now on what ranks say of rooms goes to these.
  void serve(engine::Engine& engine, std::weak_ptr<Rooms> rooms);
  void stop();

  const std::shared_ptr<const wire::ClusterToken>& token() const { return token_; }
  RankPort& own() { return *own_; }
  // Of the head's own rank, whose port is the caller's.
  void set_own_endpoint(std::string endpoint);
  // Where every rank is called, ":PORT" at the host of the head; kUnavailable where one has not said it by
  // then.
  Expected<std::vector<std::string>> endpoints(TimePoint deadline);
  // Empty where it is not known.
  std::string endpoint(std::int32_t rank) const;

  Status tell(std::int32_t rank, const wire::RankWord& word);
  // Fails with the first that does not hear it.
  Status tell_all(const wire::RankWord& word);

 private:
  void hear(std::int32_t rank, std::span<const std::byte> word);

  const std::shared_ptr<const wire::ClusterToken> token_;
  const std::shared_ptr<RankPort> own_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> endpoints_;  // by rank; empty: not known
  engine::Engine* engine_ = nullptr;
  std::int32_t ranks_ = 0;
  std::weak_ptr<Rooms> rooms_;
};

}  // namespace shoal::handover
