// Starts the ranks of this host as processes: this program again, as `shoal rank`.
//
// Thread-safety: belongs to one thread at a time.
// Ownership: owns the processes: finish(), or the destructor, sees to their end.
// Invariants: the cluster token goes down a pipe; it is on no command line and in no environment. Each rank
//   leads a process group of its own, so that an interrupt typed at the terminal reaches the head alone.

#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "engine/worker_ranks.h"

namespace shoal::cli {

class ProcessLauncher : public engine::RankLauncher {
 public:
  // host: their identity where it is not what the system says (--host-id). fault_plan: a file that ranks are
  // started with, the first time. Empty: none.
  explicit ProcessLauncher(std::string log_level, std::string host = "", std::string fault_plan = "")
      : log_level_(std::move(log_level)), host_(std::move(host)), fault_plan_(std::move(fault_plan)) {}
  ~ProcessLauncher() override;

  Status launch(const comm::Endpoint& head, const wire::ClusterToken& token, std::int32_t rank) override;
  std::optional<std::string> ended() override;
  void finish(TimePoint deadline) override;

 private:
  struct Process {
    pid_t pid = 0;
    std::int32_t rank = 0;
  };

  static void end(const Process& process, TimePoint deadline);

  std::string log_level_;
  std::string host_;
  std::string fault_plan_;
  std::vector<std::int32_t> launched_;  // with a fault plan
  std::vector<Process> processes_;
};

}  // namespace shoal::cli
