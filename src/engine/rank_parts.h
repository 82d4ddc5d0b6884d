// Everything one rank of a worker owns, and the steps in which it comes to be: the same for the head's own
// rank and for those that join it.
//
// Thread-safety: belongs to the rank's executor thread, which makes and destroys it.
// Ownership: owns threads, weights, KV bytes, connection; members are destroyed after those that use them.
// Invariants: load_weights(), then make_pools(), then connect() where there are other ranks, then
// make_rank().
//   disconnect() goes back to before connect().

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/fault_plan.h"
#include "comm/ledger.h"
#include "core/expected.h"
#include "core/thread_pool.h"
#include "engine/rank.h"
#include "engine/rank_carrier.h"
#include "kernels/context.h"
#include "kv/kv_store.h"
#include "kv/offload_buffer.h"
#include "layout/layout.h"
#include "layout/stages.h"
#include "model/forward.h"
#include "parallel/peers.h"

namespace shoal::engine {

// What a rank needs to know to load its part of the model.
struct RankSettings {
  std::filesystem::path model;
  Layout layout = Layout::single();
  std::int32_t rank = 0;
  std::vector<std::int32_t> stage_layers;  // empty: balanced
  Balance balance = Balance::kMix;
  std::vector<std::int32_t> tp_split;  // empty: even
  DType sums = DType::kF32;            // comm::Collectives::Options::wire
  std::int32_t threads = 0;            // 0: usable_cores()
  // Whether this host has a core for every compute thread of its ranks; else nobody spins.
  bool spin = true;
  KvDType kv_dtype = KvDType::kBf16;
  kernels::Activations activations = kernels::Activations::kAuto;
  bool strict = false;
  std::optional<DType> weights;
  std::filesystem::path packed_cache;             // empty: none
  std::function<void(double fraction)> progress;  // of loading
};

// Whether the model can be cut as the settings say, without reading weights. Fails with the sentence that
// loading would.
Status check_layout(const RankSettings& settings);

struct RankParts {
  std::unique_ptr<ThreadPool> pool;
  kernels::Context context;
  DType sums = DType::kF32;
  std::unique_ptr<model::Model> model;
  std::optional<kv::KvStore> store;
  std::optional<kv::OffloadBuffer> offload;
  // Shared: others read it while this rank works.
  std::shared_ptr<comm::Ledger> ledger = std::make_shared<comm::Ledger>();
  RankConnection connection;  // empty where the rank is alone
  std::optional<parallel::Peers> peers;
  std::optional<Rank> rank;

  Status load_weights(const RankSettings& settings);
  // Of one page in every KV group on this rank. coordinates: that sequences may lie with; pages of the others
  // need room while a layer attends to them.
  std::size_t page_bytes(KvDType dtype, std::int32_t coordinates) const;
  // offload_places: pages of each group that the offload buffer holds; 0: there is none.
  Status make_pools(KvDType dtype, std::int64_t pages, std::int32_t offload_places, std::int32_t coordinates);
  // faults: null, or what spoils the carrier.
  void connect(const RankMeeting& meeting, RankConnection to_others, std::shared_ptr<comm::FaultPlan> faults);
  // The end of an epoch: weights and pools stay.
  void disconnect();
  void make_rank(Rank::Options options);
  // Of each KV group: what all ranks must agree on. Heads and layers are the layout's.
  std::vector<std::string> kv_ids(KvDType dtype) const;
  // Of each KV group, what this rank holds.
  std::vector<KvPart> kv_parts() const;
  // What a service of this rank works on; who it is and whom it talks to are the caller's to fill in.
  RankService::Begin service_begin() const;
};

}  // namespace shoal::engine
