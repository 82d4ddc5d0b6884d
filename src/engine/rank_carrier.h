// How the ranks of one worker get their carrier: who shares memory, how much of it, who sums together, who
// calls whom.
//
// Thread-safety: pure functions; connect_ranks() occupies its thread, one call on every rank at once.
// Ownership: a connection owns what it is made of.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/carrier.h"
#include "comm/ledger.h"
#include "comm/shm_layout.h"
#include "comm/shm_meeting.h"
#include "comm/socket.h"
#include "core/expected.h"
#include "core/ids.h"
#include "core/thread_pool.h"
#include "engine/interrupt.h"
#include "layout/layout.h"
#include "wire/cluster_token.h"

namespace shoal::engine {

// Bytes that may wait between two ranks: where there are stages, the residual stream of the largest step, so
// that a stage that has finished goes on to its next plan.
std::uint64_t ring_bytes_for(const Layout& layout, std::int64_t hidden);

// What every rank knows once all have loaded.
struct RankMeeting {
  Layout layout = Layout::single();
  std::int32_t rank = 0;
  Epoch epoch;
  std::vector<std::string> hosts;         // identity of each rank's host
  std::vector<comm::Endpoint> endpoints;  // where each rank's carrier listens; used on several hosts only
  std::string name;                       // where hosts hand their memory out; each adds its lowest rank
  std::int32_t lanes = 1;
  std::uint64_t ring_bytes = 0;
  bool spin = false;
  std::string fabric;  // interface by which ranks of other hosts are reached with UCX; empty: TCP

  bool one_host() const;
  // Of each rank, seen from this one.
  std::vector<comm::Scope> scopes() const;
  // Of each rank, a number that ranks of one host share.
  std::vector<std::int32_t> host_numbers() const;
};

struct RankConnection {
  std::unique_ptr<comm::Carrier> carrier;
  // On the lowest rank of a host: hands its memory out to the others.
  std::unique_ptr<comm::ShmHost> host;
};

// What whoever opens a fabric is told.
inline constexpr const char* kFabricWarning =
    "what comes over a fabric is not authenticated and may write into this process: "
    "let nobody else onto that network";

// Between ranks of one host all goes through its memory, to others by TCP, or by UCX over the fabric.
// listener: null on one host. Ends early where `interrupt` is tripped.
Expected<RankConnection> connect_ranks(const RankMeeting& meeting, const wire::ClusterToken& token,
                                       comm::Listener* listener, ThreadPool& pool, Interrupt& interrupt,
                                       TimePoint deadline);

}  // namespace shoal::engine
