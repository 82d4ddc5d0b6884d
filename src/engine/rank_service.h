// What lives in a rank beside its step plans: whoever moves KV between this rank's pools and another
// worker's (handover/). The head's side of it talks to that of every rank in words of its own, which travel
// on the control connections in order with step plans.
//
// Thread-safety: begin(), end() and computed() are called on the rank's executor thread; take() on the thread
//   that reads the head's messages, in the head's own process on any. None of them may wait for a peer.
// Ownership: shared by the rank and whoever made it. What Begin names lives until end() has returned.
// Invariants:
//   1. take() of a word has returned before a step plan that the head sent after it is looked at. So a word
//      that closes a gate keeps it closed for whatever later plans do with the pages behind it.
//   2. Between end() and the next begin() nothing touches the pools, and nothing is said.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/ledger.h"
#include "comm/socket.h"
#include "layout/reshard.h"
#include "tensor/kv_layout.h"

namespace shoal::engine {

// Neighbouring logical pages of one sequence, and where they lie in this rank's pool.
struct SlotRun {
  std::int32_t first = 0;
  std::vector<std::int32_t> slots;
};

// One layer of these pages is complete on this rank and will not change.
struct ComputedPages {
  std::uint64_t room = 0;
  std::int32_t group = 0;
  std::int32_t layer = 0;                            // in the group of the whole model
  std::shared_ptr<const std::vector<SlotRun>> runs;  // ascending; the same for all layers of a step
};

class RankService {
 public:
  struct Begin {
    std::int32_t rank = 0;
    std::string role;                   // of the worker: "both", "prefill", "decode"
    comm::Endpoint listen;              // where peers of other workers may call; port 0: a free one
    std::string host;                   // identity of this rank's host (--host-id)
    bool at_head = true;                // on the head's host: it is reached where the head is
    std::vector<KvView> pools;          // by group
    std::vector<std::int32_t> windows;  // by group; 0: all positions are seen
    std::vector<KvPart> parts;          // by group: what of the model they hold
    std::shared_ptr<comm::Ledger> ledger;
    std::function<Status(std::span<const std::byte>)> say;  // a word to the head, from any thread
  };

  virtual ~RankService() = default;
  virtual Status begin(Begin begin) = 0;
  virtual void end() = 0;
  virtual void take(std::span<const std::byte> word) = 0;
  virtual void computed(const ComputedPages& pages) = 0;
};

}  // namespace shoal::engine
