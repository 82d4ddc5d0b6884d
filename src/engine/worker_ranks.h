// The head's side of a worker's other ranks: has them started, lets them join, hands them step plans, notices
// when one is gone.
//
// Thread-safety: start(), await_loaded(), begin(), await_ready() belong to the head's executor thread, in
//   this order; broadcast() to the engine thread; `result` and `lost` are called on a thread of this class
//   and must only queue.
// Ownership: owns listener, links and threads; the launcher is shared. The destructor tells the ranks to stop
//   and waits for its threads, then for what the launcher started, within its bound.
// Invariants:
//   1. A rank is let in once: the first that names a number, or the lowest free one.
//   2. `lost` is called at most once, and only after await_ready() has succeeded; before that the waits fail.

#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/pulsed_link.h"
#include "comm/socket.h"
#include "core/expected.h"
#include "layout/layout.h"
#include "layout/step_plan.h"
#include "wire/cluster_token.h"
#include "wire/rank_messages.h"

namespace shoal::engine {

// Starts ranks of this host and sees to their end. Processes in the product, threads in tests.
class RankLauncher {
 public:
  virtual ~RankLauncher() = default;
  // A rank that joins `head` as number `rank`.
  virtual Status launch(const comm::Endpoint& head, const wire::ClusterToken& token, std::int32_t rank) = 0;
  // A sentence where one has ended by itself already; it will not join.
  virtual std::optional<std::string> ended() = 0;
  // Returns when all are gone; after the deadline by force.
  virtual void finish(TimePoint deadline) = 0;
};

class WorkerRanks {
 public:
  struct Options {
    Layout layout = Layout::single();
    wire::Assign assign;  // what is the same for all; rank is filled in
    std::string build;
    std::string host;
    std::shared_ptr<RankLauncher> launcher;
    std::function<void(StepResult)> result;
    std::function<void(Status)> lost;
  };

  static Expected<std::unique_ptr<WorkerRanks>> start(Options options);
  ~WorkerRanks();
  WorkerRanks(const WorkerRanks&) = delete;
  WorkerRanks& operator=(const WorkerRanks&) = delete;

  // Until every rank has loaded its part; theirs, by rank, this one's place empty. Fails where one does not
  // come in time, ends, or fails: its sentence.
  Expected<std::vector<wire::Loaded>> await_loaded();
  Status begin(const wire::Start& start);
  Status await_ready();
  // A rank that cannot be reached is reported as lost.
  void broadcast(const StepPlan& plan);

 private:
  enum class State : std::uint8_t { kAbsent, kJoining, kLoading, kLoaded, kStarting, kReady };
  struct Member {
    State state = State::kAbsent;
    std::string name;  // "rank 2 (process 71)"
    wire::Loaded loaded;
    std::unique_ptr<comm::PulsedLink> link;
  };

  WorkerRanks(Options options, comm::Listener listener, wire::ClusterToken token);
  void accept();
  void admit(comm::Socket socket);
  Expected<std::int32_t> seat(const wire::Join& join);
  void take_frame(std::int32_t rank, comm::ControlFrame frame);
  Status frame_taken(std::int32_t rank, const comm::ControlFrame& frame);
  void fail(std::int32_t rank, const Status& status);
  Status await_all(State state);
  std::string absent() const;  // under the mutex

  Options options_;
  comm::Listener listener_;
  wire::ClusterToken token_;
  TimePoint join_deadline_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Member> members_;  // by rank; 0 is the head's own
  Status failed_;
  bool serving_ = false;
  bool closing_ = false;
  std::size_t openings_ = 0;
  std::thread acceptor_;
};

}  // namespace shoal::engine
