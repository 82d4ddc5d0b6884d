// The head's side of a worker's other ranks: has them started, lets them join, hands them step plans, notices
// when one is gone and has it replaced.
//
// Thread-safety: begin_epoch() to await_ready() belong to the head's executor thread, in this order for each
//   epoch; broadcast() to the engine thread, while an epoch serves; reports() and cancel() to any; `result`
//   and `lost` are called on a thread of this class and must only queue.
// Ownership: owns listener, links and threads; the launcher is shared. The destructor tells the ranks to stop
//   and waits for its threads, then for what the launcher started, within its bound.
// Invariants:
//   1. A rank is let in where its number is free: the one that it names, or the lowest that is awaited.
//   2. `lost` is called at most once an epoch, and only after await_ready() has succeeded; before that the
//      waits fail.
//   3. What a rank says of another epoch than the one begun last changes nothing.

#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "comm/pulsed_link.h"
#include "comm/socket.h"
#include "core/expected.h"
#include "engine/rank_joining.h"
#include "layout/layout.h"
#include "layout/step_plan.h"
#include "wire/cluster_token.h"
#include "wire/rank_messages.h"

namespace shoal::engine {

// Starts ranks of this host and sees to their end. Processes in the product, threads in tests.
class RankLauncher {
 public:
  virtual ~RankLauncher() = default;
  // A rank that joins `head` as number `rank`; the one started before as this number is ended first.
  virtual Status launch(const comm::Endpoint& head, const wire::ClusterToken& token, std::int32_t rank) = 0;
  // A sentence where one has ended by itself since this was asked last; it will not join.
  virtual std::optional<std::string> ended() = 0;
  // Returns when all are gone; after the deadline by force.
  virtual void finish(TimePoint deadline) = 0;
};

class WorkerRanks {
 public:
  struct Options {
    Layout layout = Layout::single();
    wire::Assign assign;  // what is the same for all; rank, epoch and what differs by host are filled in
    std::string build;
    RankJoining joining;  // with host and local_ranks filled in
    std::shared_ptr<RankLauncher> launcher;
    std::function<void(StepResult)> result;
    std::function<void(Status)> lost;
    // The epoch that is being begun has failed: whatever is waited for meanwhile is in vain. As `lost`.
    std::function<void(const Status&)> in_vain;
    // What a rank's service says (engine/rank_service.h). As `result`.
    std::function<void(std::int32_t rank, std::span<const std::byte> word)> word;
    // Where ranks of this host may be called by other workers; rank r on port + r, where there is a port.
    comm::Endpoint handover;
  };

  static Expected<std::unique_ptr<WorkerRanks>> start(Options options);
  ~WorkerRanks();
  WorkerRanks(const WorkerRanks&) = delete;
  WorkerRanks& operator=(const WorkerRanks&) = delete;

  // Ranks that are here begin anew, those of this host that are not are started, the rest are awaited.
  Status begin_epoch(Epoch epoch);
  // Until every rank has loaded its part; theirs, by rank, this one's place empty. Fails where one ends or
  // fails: its sentence; in the first epoch also where one does not come in time.
  Expected<std::vector<wire::Loaded>> await_loaded();
  // A rank that cannot serve here: it ends with the sentence, and its place is free in the next epoch.
  void dismiss(std::int32_t rank, const std::string& sentence);
  Status send_start(const wire::Start& start);
  Status await_ready();
  // A rank that cannot be reached is reported as lost.
  void broadcast(const StepPlan& plan);
  // A word for a rank's service, from any thread; in order with the plans that are broadcast afterwards.
  Status tell(std::int32_t rank, std::span<const std::byte> word);
  // Waits end, now and later: the worker is being stopped.
  void cancel();

  const wire::ClusterToken& token() const { return *token_; }
  Status status() const;                   // why this epoch has failed
  std::vector<std::string> hosts() const;  // by rank
  std::vector<RankReport> reports() const;

 private:
  enum class State : std::uint8_t {
    kAbsent,
    kJoining,
    kLoading,
    kLoaded,
    kStarting,
    kReady,
    kLost,  // its link is still to be taken down
  };
  struct Member {
    State state = State::kAbsent;
    std::string name;  // "rank 2 (process 71)"
    std::string host;
    std::int32_t pid = 0;
    wire::Loaded loaded;
    std::unique_ptr<comm::PulsedLink> link;
    TrafficTotals traffic;  // of the process that is it
    TrafficTotals earlier;  // of those that were
  };

  WorkerRanks(Options options, comm::Listener listener, std::shared_ptr<const wire::ClusterToken> token);
  void take_down_lost();
  void accept();
  Status admit(comm::Socket socket);
  void let_in(std::int32_t index, const wire::Join& join, std::unique_ptr<comm::ControlLink> link);
  Expected<std::int32_t> seat(const wire::Join& join);
  wire::Assign assign_for(std::int32_t rank, const std::string& host) const;  // under the mutex
  void take_frame(std::int32_t rank, comm::ControlFrame frame);
  Status frame_taken(std::int32_t rank, const comm::ControlFrame& frame);
  // Why the epoch ends; the first counts.
  void fail(std::int32_t rank, const Status& status);
  void lose(std::int32_t rank, const Status& status);
  // Takes the lock on the mutex, and gives it up before it reports.
  void end_epoch(std::int32_t rank, const Status& status, std::unique_lock<std::mutex> lock);
  Status await_all(State state);
  bool launched(std::size_t rank) const {
    return static_cast<std::int32_t>(rank) < options_.joining.local_ranks;
  }
  std::string absent() const;  // under the mutex

  Options options_;
  comm::Listener listener_;
  std::shared_ptr<const wire::ClusterToken> token_;
  comm::Endpoint here_;      // where this host's ranks join
  TimePoint join_deadline_;  // of ranks that are started here, in each epoch; of all in the first
  comm::Ledger ledger_;      // of the control connections; charged by the engine thread

  // Held, shared, by whoever sends from other threads than the executor's; links go under it.
  std::shared_mutex telling_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Member> members_;  // by rank; 0 is the head's own
  Epoch epoch_;
  bool first_epoch_ = true;
  Status failed_;
  bool serving_ = false;
  bool cancelled_ = false;
  bool closing_ = false;
  std::size_t openings_ = 0;
  std::thread acceptor_;
};

}  // namespace shoal::engine
