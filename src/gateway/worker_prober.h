// Asks workers how they are, and gives up those that have fallen silent.
//
// Workers that register push their reports and are not asked; a lease that has run out ends them. The others
// are asked for a report; what has none is taken for a plain engine and asked for its health and models.
//
// Thread-safety: of the gateway's loop; tick() is called there every kTick.
// Ownership: refers to registry, client and loop, which must outlive it.

#pragma once

#include <chrono>
#include <memory>
#include <unordered_map>

#include "core/clock.h"
#include "gateway/worker_registry.h"
#include "wire/http_client.h"

namespace shoal::gateway {

struct ProbeOptions {
  std::chrono::milliseconds interval{400};
  // Two unanswered questions in a row, the second asked at once, make a worker lost: 1.8 s in all at most.
  std::chrono::milliseconds patience{700};
  std::chrono::milliseconds plain_interval{1000};
  // A registered worker that says nothing for this long is lost; ten times that, and it is forgotten.
  std::chrono::milliseconds lease{2000};
  std::string api_key;  // sent to workers that want one
};

class WorkerProber {
 public:
  static constexpr std::chrono::milliseconds kTick{100};

  WorkerProber(WorkerRegistry& registry, wire::HttpClient& client, ProbeOptions options)
      : registry_(registry), client_(client), options_(std::move(options)) {}

  void tick(TimePoint now);

 private:
  struct Probe {
    std::weak_ptr<Worker> worker;
    TimePoint due{};
    int failures = 0;
    bool asked = false;
    bool plain = false;
  };
  using ProbePtr = std::shared_ptr<Probe>;

  void check_lease(const WorkerPtr& worker, TimePoint now);
  void ask(const ProbePtr& probe, const WorkerPtr& worker, const char* path);
  void answered(const ProbePtr& probe, const std::string& path, const Status& status, int code,
                const std::string& body);
  void take_report(const ProbePtr& probe, const WorkerPtr& worker, int code, const std::string& body);
  void take_models(const ProbePtr& probe, const WorkerPtr& worker, int code, const std::string& body);
  void missed(const ProbePtr& probe, const WorkerPtr& worker, const Status& why);

  WorkerRegistry& registry_;
  wire::HttpClient& client_;
  const ProbeOptions options_;
  std::unordered_map<const Worker*, ProbePtr> probes_;
};

}  // namespace shoal::gateway
