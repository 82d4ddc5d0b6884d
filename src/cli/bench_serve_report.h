// What a load on servers came to: latencies, throughput, and what of it kept the promised times.
//
// Thread-safety: values and pure functions.

#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/bench_serve_load.h"
#include "policy/profile.h"

namespace shoal::cli {

// Times that an answer is to keep; 0: no bound.
struct LoadPromise {
  double ttft_ms = 0;
  double gap_ms = 0;  // the mean gap between two tokens of one answer

  bool any() const { return ttft_ms > 0 || gap_ms > 0; }
  bool kept_by(const LoadRecord& record) const;
};

struct Percentiles {
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;
};

struct LoadSummary {
  std::size_t requests = 0;
  std::size_t answered = 0;
  std::size_t kept = 0;  // answered within the promised times
  std::map<std::string, int> errors;
  double seconds = 0;  // from the first arrival to the last answer
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t completion_tokens = 0;
  Percentiles ttft_ms;
  Percentiles gap_ms;
  Percentiles e2e_ms;
  double worst_send_lag_ms = 0;  // how late this program itself was

  double per_second(double count) const { return seconds > 0 ? count / seconds : 0; }
};

LoadSummary summarise(const std::vector<const LoadRecord*>& records, const LoadPromise& promise);
// By class of what each was answered with; of those that were answered.
std::map<std::string, LoadSummary> summarise_by_class(const std::vector<LoadRecord>& records,
                                                      const LoadPromise& promise,
                                                      const policy::ClassLimits& limits);

nlohmann::ordered_json figures(const LoadSummary& summary, const LoadPromise& promise);
void print_load_table(const LoadSummary& all, const std::map<std::string, LoadSummary>& classes,
                      const LoadPromise& promise, double rate);
// Shares of requests and gaps below each time, by class: two curves of each.
std::string load_svg(const std::vector<LoadRecord>& records, const policy::ClassLimits& limits,
                     const LoadPromise& promise);

}  // namespace shoal::cli
