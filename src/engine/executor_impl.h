// What an executor is made of: the thread's state, in executor.cc, and how epochs begin and end, in
// executor_epochs.cc.
//
// Thread-safety: fields below a mutex are under it; parts, settings and what epochs are made from belong to
//   the executor thread.
// Ownership: as Executor.

#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/fault_plan.h"
#include "comm/ledger.h"
#include "engine/executor.h"
#include "engine/interrupt.h"
#include "engine/rank_joining.h"
#include "engine/rank_parts.h"
#include "engine/worker_ranks.h"

namespace shoal::engine {

struct Executor::Impl {
  Callbacks callbacks;
  Loaded loaded;
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<StepPlan> plans;
  bool stop = false;
  std::optional<PlanNumber> resume_at;  // set once the engine has ended what the lost epoch held
  std::thread thread;

  // Where there are other ranks. Made while loading; broadcast() is the engine thread's.
  std::unique_ptr<WorkerRanks> ranks;
  RankSettings settings;
  RankJoining joining;
  KvDType kv_dtype = KvDType::kBf16;
  bool strict = false;
  Rank::Options rank_options;
  std::shared_ptr<comm::Ledger> ledger;
  Interrupt interrupt;
  std::shared_ptr<comm::FaultPlan> faults;
  std::shared_ptr<RankService> service;
  std::function<void(std::int32_t, std::span<const std::byte>)> word;
  std::string role;
  comm::Endpoint handover;
  // Results come from whichever rank samples, losses from any: all under this mutex.
  std::mutex answering;
  // A plan is answered when every coordinate that it is for has: what came of it so far.
  struct Unanswered {
    PlanNumber number;
    CoordinateSet coordinates;
    std::int32_t missing = 0;
    StepResult result;
  };
  std::deque<Unanswered> unanswered;
  Epoch epoch;
  std::string lost;  // why nothing is served; empty: all is well

  // Of all of them each has a sampling rank of its own.
  CoordinateSet coordinates() const { return CoordinateSet::first(settings.layout.sub_batches()); }
  void main(const EngineOptions& options, std::int32_t max_slots, std::promise<Status> started);
  Status load(const EngineOptions& options, std::int32_t max_slots, RankParts& parts);
  Status choose_offload(const EngineOptions& options, const RankParts& parts,
                        const std::vector<wire::Loaded>& others);
  Status start_ranks(const EngineOptions& options, std::int32_t max_slots);
  Status connect_epoch(RankParts& parts, const std::vector<wire::Loaded>& others, PlanNumber first_plan);
  Status begin_service(RankParts& parts);
  Expected<std::string> listen(std::optional<comm::Listener>& listener) const;
  void serve(RankParts& parts);
  bool recover(RankParts& parts);
  bool pause(std::chrono::milliseconds time);
  void answer(StepResult result);
  void hand_on_what_is_answered();  // under `answering`
  void lose(const Status& status);
};

}  // namespace shoal::engine
