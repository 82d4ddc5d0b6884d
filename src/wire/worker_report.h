// What a worker says of itself: its card (what it is) and its load (how it is just now), one JSON object.
//
// Asked for with GET /worker_report, or sent to a gateway with POST /workers by a worker that registers,
// every half second. docs/gateway.md describes the fields.
//
// Thread-safety: values and pure functions.
// Errors: parse fails with kInvalidArgument naming the field; unknown fields are left aside, so that a newer
//   worker can be read.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"

namespace shoal::wire {

// Bumped when what an older gateway would read means something else.
inline constexpr std::int64_t kWorkerProtocol = 1;
inline constexpr std::string_view kWorkerReportPath = "/worker_report";

struct WorkerReport {
  std::int64_t protocol = kWorkerProtocol;
  // Card. instance: drawn by the process at its start, so that a successor on the same port is told apart.
  std::string instance;
  std::string role = "both";  // both, prefill or decode
  std::vector<std::string> models;
  std::string fingerprint;
  std::int64_t context = 0;         // tokens
  std::int64_t max_sequences = 0;   // that run at once
  std::int64_t pages = 0;           // of KV, of 32 tokens
  std::int64_t created = 0;         // of its models, seconds since 1970
  bool resumes = false;             // speaks X-Shoal-Inner and shoal_resume
  std::int64_t bootstrap_port = 0;  // of a prefill worker; 0: none

  // Load. sequence: grows with every report of an instance.
  std::int64_t sequence = 0;
  std::int64_t epoch = 0;
  std::string state = "ready";  // ready, loading, draining, or stuck: work waits and nothing moves
  std::string why;              // where it is not ready
  std::int64_t running = 0;
  std::int64_t waiting = 0;
  std::int64_t uncached_tokens = 0;  // of prompts that wait or are being computed
  std::int64_t free_pages = 0;       // free, or cached and nobody's

  std::string to_json() const;
  static Expected<WorkerReport> parse(std::string_view json);
};

}  // namespace shoal::wire
