// What the gateway counts, under the names of docs/metrics.md.
//
// Thread-safety: counting from the loop; text() there, too.
// Ownership: owns the counters; references stay good as long as it lives.

#pragma once

#include <array>
#include <string>

#include "gateway/admission_queue.h"
#include "gateway/worker_registry.h"
#include "wire/metrics_text.h"

namespace shoal::gateway {

// How a request ended; every one ends in one of these.
enum class Ending : std::uint8_t {
  kAnswered,    // in full, or with a worker's own refusal (4xx)
  kRejected,    // by the gateway: key, limits, unknown model, malformed
  kOverloaded,  // 429 of the gateway
  kFailed,      // no worker could answer it, or the stream had to end with an error
  kClientGone,
};
inline constexpr std::size_t kEndings = 5;
const char* name_of(Ending ending);

class GatewayMetrics {
 public:
  GatewayMetrics();

  void received() { received_.add(); }
  void ended(Ending ending) { ended_[static_cast<std::size_t>(ending)]->add(); }
  void routed(const char* reason);
  // cause: refused, lost, pair.
  void retried(const char* cause);
  void continued(bool possible);
  // Seconds; network: what is left of the whole.
  void first_token(double whole, double queue, double execution);
  // Of a pair: from the prefill worker's first token to the decode worker's.
  void handed_over(double seconds) { handover_.observe(seconds); }
  void finished(double seconds) { e2e_.observe(seconds); }
  void tokens(double prompt, double output);

  std::string text(const WorkerRegistry& workers, std::size_t open_pairs, const AdmissionQueue& queue,
                   std::size_t connections) const;

 private:
  wire::MetricsRegistry registry_;
  wire::Counter& received_;
  std::array<wire::Counter*, kEndings> ended_{};
  wire::Histogram& ttft_;
  wire::Histogram& ttft_queue_;
  wire::Histogram& ttft_execution_;
  wire::Histogram& ttft_network_;
  wire::Histogram& handover_;
  wire::Histogram& e2e_;
  wire::Counter& prompt_tokens_;
  wire::Counter& output_tokens_;
};

}  // namespace shoal::gateway
