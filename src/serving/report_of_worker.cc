#include "serving/report_of_worker.h"

#include <fmt/format.h>

#include <random>

namespace shoal::serving {

std::string draw_instance() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

wire::WorkerReport report_of(const Worker& worker, bool draining) {
  const engine::Engine& engine = *worker.engine;
  const engine::EngineStats stats = engine.stats();
  wire::WorkerReport report;
  report.instance = worker.instance;
  report.models = {worker.served_name};
  report.fingerprint = engine.description().fingerprint;
  report.context = engine.context();
  report.max_sequences = worker.max_sequences;
  report.created = worker.created;
  report.resumes = true;
  if (worker.sender != nullptr) report.role = "prefill";
  if (worker.receiver != nullptr) report.role = "decode";
  if (worker.bootstrap != nullptr) report.bootstrap_port = worker.bootstrap->port();
  report.sequence = ++*worker.reports;
  const engine::WorkerReport ranks = engine.worker();
  report.epoch = static_cast<std::int64_t>(ranks.epoch.value);
  report.running = stats.running;
  report.waiting = stats.waiting;
  report.uncached_tokens = stats.uncached_tokens_queued;
  if (!stats.kv.empty()) {
    report.pages = stats.kv.front().capacity;
    report.free_pages = stats.kv.front().free + stats.kv.front().cached;
  }
  if (draining) {
    report.state = "draining";
  } else if (!ranks.lost.empty()) {
    report.state = "loading";
    report.why = ranks.lost + "; the worker is starting anew";
  } else if (stats.seconds_since_progress > kStuckSeconds) {
    report.state = "stuck";
    report.why =
        fmt::format("work is waiting and no step has ended for {:.0f} s", stats.seconds_since_progress);
  }
  return report;
}

}  // namespace shoal::serving
