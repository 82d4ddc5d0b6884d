// A rank that has joined a worker: loads the shard it is assigned, then runs the head's step plans.
//
// Thread-safety: run_joined_rank() occupies its thread, the rank's executor, until the end; it starts threads
//   of its own for the link.
// Ownership: everything of the rank is gone when it returns.
// Invariants: docs/wire.md, sections 3 to 5. It ends within seconds of its head's end, whatever it was doing;
//   the loss of another rank it survives: its weights stay for the next epoch.

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "comm/fault_plan.h"
#include "comm/socket.h"
#include "core/expected.h"
#include "engine/rank.h"
#include "engine/rank_service.h"
#include "wire/cluster_token.h"

namespace shoal::engine {

struct JoinOptions {
  comm::Endpoint head;
  std::int32_t rank = -1;    // -1: any
  std::string build;         // the head's must be the same
  std::string host;          // comm::host_identity(), or what stands for it
  std::string model;         // instead of the path that the head names; empty: that
  std::string packed_cache;  // instead of the folder that the head names; empty: that
  std::int32_t threads = 0;  // 0: as the head assigns
  // Where the other ranks call this one. No host: at the address that the head was reached from. Port 0: a
  // free one.
  comm::Endpoint advertise;
  // This host's interface of the network that the head's is of; empty: it has the head's name.
  std::string fabric;
  // Whether a head that does not listen yet is waited for: one that starts its ranks itself does.
  bool await_head = false;
  // The head went while weights are being packed, which nothing can cut short: a process ends here.
  std::function<void()> lost_while_loading;
  std::shared_ptr<RankService> service;  // as in EngineOptions
  // For tests, as in EngineOptions.
  LogitsObserver logits_observer;
  std::shared_ptr<comm::FaultPlan> faults;
};

enum class RankEnd : std::uint8_t {
  kStopped,   // by the head
  kLostHead,  // it is gone, silent, or talks nonsense
};

// Fails where the rank could not join, was refused, or could not go on: one sentence.
Expected<RankEnd> run_joined_rank(const JoinOptions& options, const wire::ClusterToken& token);

}  // namespace shoal::engine
