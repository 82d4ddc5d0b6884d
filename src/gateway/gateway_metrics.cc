#include "gateway/gateway_metrics.h"

#include <algorithm>
#include <vector>

namespace shoal::gateway {
namespace {

using wire::MetricType;

// 1 ms to 60 s, three a decade: the engine's histograms have the same range.
const std::vector<double> kSeconds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                      0.5,   1,      2.5,   5,    10,    30,   60};
constexpr const char* kRouted = "shoal_route_total";
constexpr const char* kRetried = "shoal_gateway_retries_total";
constexpr const char* kContinued = "shoal_gateway_continuations_total";

void one(wire::MetricsWriter& out, std::string_view name, std::string_view help, double value) {
  out.family(name, help, MetricType::kGauge);
  out.sample({}, value);
}

template <typename F>
void by_worker(wire::MetricsWriter& out, const WorkerRegistry& workers, std::string_view name,
               std::string_view help, MetricType type, F&& value) {
  out.family(name, help, type);
  for (const WorkerPtr& worker : workers.workers())
    out.sample({{"worker", worker->name}}, static_cast<double>(value(*worker)));
}

}  // namespace

const char* name_of(Ending ending) {
  switch (ending) {
    case Ending::kAnswered:
      return "answered";
    case Ending::kRejected:
      return "rejected";
    case Ending::kOverloaded:
      return "overloaded";
    case Ending::kFailed:
      return "failed";
    case Ending::kClientGone:
      return "client_gone";
  }
  return "failed";
}

GatewayMetrics::GatewayMetrics()
    : received_(registry_.counter("shoal_gateway_requests_received_total", "Requests for workers that came")),
      ttft_(registry_.histogram("shoal_user_ttft_seconds",
                                "Arrival at the gateway to the first token sent on", kSeconds)),
      ttft_queue_(
          registry_.histogram("shoal_user_ttft_queue_seconds", "Of it, waiting in the gateway", kSeconds)),
      ttft_execution_(registry_.histogram(
          "shoal_user_ttft_execution_seconds",
          "Of it, at the worker (of a pair, the prefill worker) by its own clock", kSeconds)),
      ttft_network_(registry_.histogram("shoal_user_ttft_network_seconds",
                                        "Of it, the rest: the way there and back", kSeconds)),
      handover_(registry_.histogram(
          "shoal_gateway_handover_seconds",
          "Of answers by a pair of workers, the prefill worker's first token to the decode worker's",
          kSeconds)),
      e2e_(registry_.histogram("shoal_user_e2e_seconds", "Arrival at the gateway to the end of the answer",
                               kSeconds)),
      prompt_tokens_(
          registry_.counter("shoal_gateway_prompt_tokens_total", "Prompt tokens, as workers said")),
      output_tokens_(registry_.counter("shoal_gateway_generation_tokens_total", "Output tokens sent on")) {
  for (std::size_t i = 0; i < kEndings; ++i)
    ended_[i] = &registry_.counter("shoal_gateway_requests_ended_total", "Requests that have ended, by how",
                                   {{"result", name_of(static_cast<Ending>(i))}});
}

void GatewayMetrics::routed(const char* reason) {
  registry_.counter(kRouted, "Decisions, by what decided", {{"reason", reason}}).add();
}

void GatewayMetrics::retried(const char* cause) {
  registry_.counter(kRetried, "Requests given to a further worker, by why", {{"cause", cause}}).add();
}

void GatewayMetrics::continued(bool possible) {
  registry_
      .counter(kContinued, "Streams whose worker was lost after the first token, by whether another went on",
               {{"result", possible ? "continued" : "failed"}})
      .add();
}

void GatewayMetrics::first_token(double whole, double queue, double execution) {
  ttft_.observe(whole);
  ttft_queue_.observe(queue);
  if (execution <= 0) return;  // a plain engine does not say
  ttft_execution_.observe(execution);
  ttft_network_.observe(std::max(0.0, whole - queue - execution));
}

void GatewayMetrics::tokens(double prompt, double output) {
  prompt_tokens_.add(prompt);
  output_tokens_.add(output);
}

std::string GatewayMetrics::text(const WorkerRegistry& workers, std::size_t open_pairs,
                                 const AdmissionQueue& queue, std::size_t connections) const {
  wire::MetricsWriter out;
  registry_.write(out);
  one(out, "shoal_gateway_requests_running", "Requests that have a place", queue.running());
  one(out, "shoal_gateway_requests_waiting", "Requests that wait for one",
      static_cast<double>(queue.waiting()));
  one(out, "shoal_gateway_worker_connections", "Connections open to workers",
      static_cast<double>(connections));
  one(out, "shoal_gateway_pairs_avoided", "Pairs of workers that their breaker keeps requests from",
      static_cast<double>(open_pairs));
  by_worker(out, workers, "shoal_gateway_worker_up", "Whether the worker takes requests", MetricType::kGauge,
            [&](const Worker& worker) { return workers.views()[worker.index].available ? 1 : 0; });
  by_worker(out, workers, "shoal_gateway_worker_in_flight", "Requests given to the worker",
            MetricType::kGauge,
            [&](const Worker& worker) { return workers.views()[worker.index].in_flight; });
  by_worker(out, workers, "shoal_gateway_worker_reserved_tokens",
            "Predicted uncached prompt tokens of those without a first token", MetricType::kGauge,
            [&](const Worker& worker) { return workers.views()[worker.index].reserved_tokens; });
  by_worker(out, workers, "shoal_gateway_worker_requests_total", "Requests given to the worker",
            MetricType::kCounter, [](const Worker& worker) { return worker.requests; });
  by_worker(out, workers, "shoal_gateway_worker_failures_total", "Of these, failed by it",
            MetricType::kCounter, [](const Worker& worker) { return worker.failures; });
  return out.take();
}

}  // namespace shoal::gateway
