// Who the ranks of a worker are and how they come: which are started here, where others join.
//
// Thread-safety: a value.

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/socket.h"
#include "engine/rank_traffic.h"
#include "wire/cluster_token.h"

namespace shoal::engine {

struct RankJoining {
  // Where ranks from other hosts join. No host: none do, and the head listens to its own alone.
  comm::Endpoint listen;
  // The cluster token; null: one is drawn, which nobody else has.
  std::shared_ptr<const wire::ClusterToken> token;
  // Ranks of this host, the head included: the launcher starts them, and again where one is lost. Others are
  // awaited. 0: all.
  std::int32_t local_ranks = 0;
  std::chrono::milliseconds time{60'000};  // until all have joined, at the start
  std::string host;                        // of the head; empty: comm::host_identity()
  // The head's interface of a trusted network, over which ranks of several hosts meet with UCX; empty: TCP.
  std::string fabric;

  bool from_elsewhere() const { return !listen.host.empty(); }
};

// One rank as the head sees it.
struct RankReport {
  std::int32_t rank = 0;
  // "absent", "joining", "loading", "loaded", "starting", "ready", "lost"; the head's own: "ready", or
  // "waiting" while another is lost.
  std::string state;
  std::string host;
  std::int32_t pid = 0;
  TrafficTotals traffic;
};

}  // namespace shoal::engine
