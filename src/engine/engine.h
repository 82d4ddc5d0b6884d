// The engine of one worker: takes requests from any thread, batches them continuously, streams their output.
//
// Thread-safety: every public function may be called from any thread.
// Ownership: owns the engine thread, the executor thread with the model, the pools, the prefix tree. Shares
//   the tokenizer. The destructor cancels what runs and joins within one step.
// Invariants: docs/execution.md, sections 1 to 4.

#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/fault_plan.h"
#include "core/expected.h"
#include "engine/handover_leg.h"
#include "engine/rank.h"
#include "engine/rank_joining.h"
#include "engine/rank_service.h"
#include "engine/request.h"
#include "engine/stats.h"
#include "kernels/context.h"
#include "layout/context_partition.h"
#include "layout/layout.h"
#include "layout/stages.h"
#include "model/description.h"
#include "policy/retraction.h"
#include "tensor/dtype.h"
#include "tensor/kv_layout.h"
#include "tokenizer/tokenizer.h"

namespace shoal::engine {

class RankLauncher;  // engine/worker_ranks.h

struct EngineOptions {
  std::filesystem::path model;
  std::int32_t threads = 0;  // 0: usable_cores()
  std::int32_t context = 0;  // --ctx; 0: the model's own
  KvDType kv_dtype = KvDType::kBf16;
  kernels::Activations activations = kernels::Activations::kAuto;
  bool deterministic = false;
  std::optional<DType> weights;        // model::LoadOptions::weights
  std::filesystem::path packed_cache;  // model::LoadOptions::packed_cache; ranks get it, too
  // Pages of the pool; 0: by kv_bytes; both 0: a share of free memory, at least one full context.
  std::int64_t kv_pages = 0;
  std::int64_t kv_bytes = 0;
  // Of host memory on each rank, for pages of sequences that gave way; 0: none, they are computed again. By
  // default a quarter of the KV pool's; memory is taken as it is used.
  std::optional<std::int64_t> offload_bytes;
  // How sequences that gave way come back; none: whichever is predicted fastest.
  std::optional<policy::Retraction> retract;
  std::int32_t max_sequences = 64;  // running at once
  std::int32_t max_queue = 512;     // waiting, beyond those; more are refused with kExhausted
  std::int32_t prefill_chunk = 0;   // tokens of a step; 0: by time, and at most 1024
  double max_token_gap = 0.2;       // seconds between two tokens of a running stream
  // Called while loading, on the executor thread; start() has not returned then.
  std::function<void(std::string_view stage, double fraction)> progress;
  // The ranks that serve the model together; the launcher starts all but the first. With one rank neither is
  // used.
  Degrees degrees;
  std::vector<std::int32_t> stage_layers;  // layers of each stage; empty: balanced
  Balance balance = Balance::kMix;
  std::vector<std::int32_t> tp_split;  // shares of the tensor ranks; empty: even
  ContextPartition cp_partition = ContextPartition::kZigzag;
  std::int32_t cp_force = 0;  // coordinates that compute every prompt; 0: as many as pay for it
  DType sums = DType::kF32;   // what sums between hosts travel as: f32 or bf16
  std::shared_ptr<RankLauncher> launcher;
  RankJoining joining;
  // Harm done on purpose to the ranks, for tests; null: none. All ranks have one, or none has.
  std::shared_ptr<comm::FaultPlan> faults;
  std::string build;  // ranks of another are refused
  // What moves KV to and from other workers, in the head's own rank and in those that join it
  // (engine/rank_service.h); null: nothing does. word: what the rank services say, on any thread; it must
  // only queue. handover: where other workers may call the ranks of this host; rank r on port + r, where
  // there is a port.
  std::string role = "both";
  std::shared_ptr<RankService> service;
  std::function<void(std::int32_t rank, std::span<const std::byte> word)> word;
  comm::Endpoint handover;
  // For tests that compare bits: sees the logits of every sampled row, on the executor thread.
  LogitsObserver logits_observer;
};

// The worker's ranks. Where one is lost requests wait for the next epoch, which computes them again, or end
// with its sentence (GenerateRequest::outlives_ranks); new ones are refused with kUnavailable meanwhile.
struct WorkerReport {
  Epoch epoch{1};
  std::string lost;               // why nothing is served just now; empty: all is well
  std::vector<RankReport> ranks;  // none where one rank serves alone
};

// The KV pools of the head's own rank and what a worker must have in common with one that it hands KV to.
// Whoever touches the bytes of a page holds it.
struct KvPools {
  std::vector<KvView> views;     // by group
  std::vector<KvGroup> groups;   // of the whole model
  std::vector<std::string> ids;  // by group: layout, type, head size, window
  Layout layout = Layout::single();
  KvParts parts;  // by rank and group
  std::string isa;
  bool strict = false;
};

struct KvGroupStats {
  std::int64_t capacity = 0, free = 0, cached = 0, held = 0, fenced = 0;
};

// A consistent snapshot, published by the engine thread after every step.
struct EngineStats {
  std::int32_t running = 0;
  std::int32_t waiting = 0;
  std::int64_t uncached_tokens_queued = 0;
  std::vector<KvGroupStats> kv;
  std::uint64_t steps = 0;
  std::uint64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  std::uint64_t requests_finished = 0, requests_cancelled = 0, requests_failed = 0;
  // Sequences that gave way to others, in all and by how they came back; what host memory holds of them now,
  // on all ranks together.
  std::uint64_t preemptions = 0;
  std::array<std::uint64_t, policy::kRetractions> retractions{};
  std::int64_t offloaded_bytes = 0;
  double seconds_since_progress = 0;  // since a step ended while work was waiting; 0 when idle
  // Of each pipeline stage: its share of the last 10 s in which it computed, and the seconds so far.
  std::vector<double> stage_busy;
  std::vector<double> stage_seconds;
  EngineHistograms histograms;
};

class Engine {
 public:
  // Loads the model (long: reports progress) and starts the threads.
  static Expected<std::unique_ptr<Engine>> start(EngineOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Takes the request, or refuses: kInvalidArgument (ids, parameters, an n beyond all
  // places), kTooLong (prompt beyond context),
  // kExhausted (queue full), kUnavailable (draining). A refused request gets no event.
  Expected<RequestId> submit(GenerateRequest request, OutputSink sink);

  // Ends a request with kCancelled; unknown or finished ones are ignored. True where one lives, or lived a
  // moment ago, and ends by it.
  bool cancel(RequestId id);
  std::int32_t cancel_all();

  // Of a leg of a handover (engine/handover_leg.h): the worker that goes on has its pages and has called for
  // these; what came of it.
  void handover_called(RequestId id, std::int32_t choice);
  void arrived(RequestId id, std::int32_t choice, FirstToken first);
  void handover_ended(RequestId id, std::int32_t choice, const Status& status);
  // To a rank's service. Whatever step plan is composed afterwards comes to the rank after it.
  Status tell_rank(std::int32_t rank, std::span<const std::byte> word);

  // Forgets every cached prefix that no running request holds. Returns once done.
  Status flush_cache();

  // No new requests from now on. Returns when the running ones have ended, or cancels them at the deadline;
  // true where none had to be cancelled.
  bool drain(TimePoint deadline);

  EngineStats stats() const;
  WorkerReport worker() const;
  const KvPools& kv_pools() const;
  comm::Ledger& ledger() const;  // of the head's own rank
  const model::ModelDescription& description() const;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer() const;
  std::int32_t context() const;  // the limit in force
  std::vector<std::string> kernel_report() const;
  std::size_t weight_bytes() const;
  std::size_t kv_bytes() const;
  std::int32_t threads() const;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::engine
