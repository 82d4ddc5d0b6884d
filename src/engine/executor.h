// The executor thread of a worker's own rank: loads the model, then runs step plans one after the other.
//
// Thread-safety: push() belongs to the engine thread; `done` is called on the executor thread and must only
//   queue.
// Ownership: owns thread, compute pool, model, KV bytes and rank. The destructor runs what is queued and
//   joins: at most two steps.
// Invariants: every pushed plan is answered exactly once, in order.

#pragma once

#include <functional>
#include <memory>

#include "core/expected.h"
#include "engine/engine.h"
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
    std::int32_t threads = 0;
    std::int32_t context = 0;  // the limit in force: as asked, and no more than the pools hold
  };

  // Loads on the new thread and waits for it; options.progress is called there. max_slots: rows of the
  // sequence table.
  static Expected<std::unique_ptr<Executor>> start(const EngineOptions& options, std::int32_t max_slots,
                                                   std::function<void(StepResult)> done);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  void push(StepPlan plan);
  const Loaded& loaded() const;

 private:
  struct Impl;
  explicit Executor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::engine
