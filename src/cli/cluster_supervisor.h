// A cluster's processes, kept running, and how the whole is: starting, ready, degraded, down.
//
// Thread-safety: belongs to one thread; asking the server's health has a thread of its own inside HttpClient.
// Ownership: owns the processes. The destructor kills what stop() has not ended.
// Invariants: before the cluster has been ready once, a process that cannot succeed (a server or the
//   gateway ends by itself, a command is not found or refuses its flags, another server has the port) ends
//   the whole; afterwards whatever ends is started again.

#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/cluster_file.h"
#include "cli/supervised_process.h"
#include "core/expected.h"
#include "wire/http_client.h"

namespace shoal::cli {

enum class ClusterState : std::uint8_t { kStarting, kReady, kDegraded, kDown };
const char* name_of(ClusterState state);

class ClusterSupervisor {
 public:
  // say: one line for the user, when something changes.
  using Say = std::function<void(const std::string& line)>;

  static Expected<ClusterSupervisor> make(const ClusterFile& cluster, const std::string& shoal, Say say);

  // One look at everything: starts what is due, notices what has ended, asks for the server's health. Fails
  // where the cluster cannot come to be.
  Status tick();
  // The gateway drains, then the servers; the ranks end with theirs. False where something had to be killed.
  // hurry: asked now and then; true ends the waiting.
  bool stop(const std::function<bool()>& hurry);

  ClusterState state() const { return state_; }
  std::size_t running() const;
  std::size_t size() const { return processes_.size(); }

 private:
  ClusterSupervisor(const ClusterFile& cluster, wire::Url health, std::shared_ptr<wire::TlsContext> tls,
                    Say say);
  Status check_port();
  Expected<wire::HttpAnswer> ask();
  Status look_at_ends();
  bool is_server(std::size_t process) const { return process < servers_; }
  bool is_gateway(std::size_t process) const { return gateway_ && process + 1 == processes_.size(); }
  // SIGTERM, and SIGKILL where it has not drained in time.
  bool end(SupervisedProcess& process, const std::function<bool()>& hurry);
  void heard(const wire::HttpAnswer& answer);
  void ask_health();
  void set_state(ClusterState state, const std::string& why);

  wire::Url health_;
  bool health_is_ours_;  // the server's own address, not one that the file names
  std::chrono::duration<double> drain_;
  Say say_;
  std::vector<SupervisedProcess> processes_;  // the servers first, the gateway last
  std::size_t servers_ = 0;
  bool gateway_ = false;
  std::unique_ptr<wire::HttpClient> client_;
  ClusterState state_ = ClusterState::kStarting;
  std::string why_;
  bool was_ready_ = false;
  std::optional<TimePoint> begun_;
  TimePoint next_question_{};
};

}  // namespace shoal::cli
