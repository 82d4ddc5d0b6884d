// One worker as the gateway knows it.
//
// Thread-safety: of the gateway's loop.
// Ownership: shared by the registry and the requests that run there; gone once it has left the one and the
//   last of the others has ended.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/clock.h"
#include "policy/fleet.h"
#include "policy/resilience.h"
#include "wire/url.h"
#include "wire/worker_report.h"

namespace shoal::gateway {

// Whoever has a request at a worker.
class WorkerUser {
 public:
  virtual ~WorkerUser() = default;
  // The worker is not to be waited for any longer. It gives its reservation back, and with the last of one
  // that leaves the worker goes from the registry: who tells must look whether it is still there. Beyond that
  // it must not add or remove workers.
  virtual void on_worker_lost(const std::string& why) = 0;
};

enum class WorkerSource : std::uint8_t { kStatic, kFile, kAdmin, kRegistered };
const char* name_of(WorkerSource source);

// kUnknown: not heard of yet.
enum class WorkerHealth : std::uint8_t { kUnknown, kUp, kDown };
const char* name_of(WorkerHealth health);

struct Worker {
  wire::Url url;
  std::string name;      // scheme, host and port
  std::uint64_t id = 0;  // never another's
  WorkerSource source = WorkerSource::kStatic;
  // As it was named; kBoth: it says itself. A plain engine is what it was named as.
  policy::WorkerRole named_role = policy::WorkerRole::kBoth;
  std::uint16_t bootstrap_port = 0;  // of a prefill worker; 0: not known
  WorkerHealth health = WorkerHealth::kUnknown;
  std::string why;        // it takes no requests; empty where it does
  bool draining = false;  // takes no new requests, by the operator's word
  bool leaving = false;   // goes once the last request there has ended
  // Speaks of itself by reports; else a plain engine of the OpenAI API.
  std::optional<wire::WorkerReport> report;
  bool plain = false;
  TimePoint heard{};  // of it, by a report or an answer to a question
  std::vector<std::string> models;
  policy::Breaker breaker;
  std::unordered_set<WorkerUser*> users;
  std::uint32_t index = 0;       // in the registry
  std::uint64_t generation = 0;  // grows with every report
  std::uint64_t requests = 0;
  std::uint64_t failures = 0;
  double prefill_rate = 0;

  bool resumes() const { return report && report->resumes; }
  policy::WorkerRole role() const;
};

using WorkerPtr = std::shared_ptr<Worker>;

}  // namespace shoal::gateway
