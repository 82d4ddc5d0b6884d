// The executor thread of a worker's own rank: loads the model, then runs step plans one after the other.
// Where other ranks serve with it and one is lost, it ends the epoch and begins the next.
//
// Thread-safety: push() and resume() belong to the engine thread, report() to any; callbacks come on any
//   thread, push()'s caller's included, and must only queue.
// Ownership: owns thread, compute pool, model, KV bytes and rank. The destructor runs what is queued and
//   joins: at most two steps.
// Invariants: every pushed plan is answered exactly once, those for the same coordinate in order. After
//   `lost`, which comes before the answers to the plans it ends, plans fail at once until `recovered`, which
//   follows resume().

#pragma once

#include <functional>
#include <memory>

#include "core/expected.h"
#include "engine/engine.h"
#include "engine/rank_joining.h"
#include "layout/step_plan.h"
#include "model/forward.h"

namespace shoal::engine {

class Executor {
 public:
  // What came of loading; immutable.
  struct Loaded {
    const model::Model* model = nullptr;
    std::int64_t kv_pages = 0;  // of each group
    std::size_t kv_bytes = 0;
    // Of each group, pages that ranks keep of sequences that gave way, and the bytes of one: on the rank
    // where that is most, and on all ranks of a coordinate.
    std::int32_t offload_places = 0;
    std::vector<std::int64_t> offload_page_bytes;
    std::vector<std::int64_t> offload_page_bytes_all;
    std::int32_t threads = 0;
    std::int32_t context = 0;  // the limit in force: as asked, and no more than the pools hold
    KvPools kv;
    std::shared_ptr<comm::Ledger> ledger;
  };

  struct Callbacks {
    std::function<void(StepResult)> done;
    std::function<void(const Status&)> lost;
    std::function<void()> recovered;
  };

  // Loads on the new thread and waits for it; options.progress is called there. max_slots: rows of the
  // sequence table.
  static Expected<std::unique_ptr<Executor>> start(const EngineOptions& options, std::int32_t max_slots,
                                                   Callbacks callbacks);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  void push(StepPlan plan);
  // After `lost`: no plan is in flight, nothing is held for one; the next will have this number.
  void resume(PlanNumber next);
  // A word for a rank's service, from any thread.
  Status tell(std::int32_t rank, std::span<const std::byte> word);
  WorkerReport report() const;
  const Loaded& loaded() const;

 private:
  struct Impl;
  explicit Executor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::engine
