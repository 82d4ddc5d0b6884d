// What every benchmark's report holds besides its own figures: the machine, its ceilings, medians.
//
// Thread-safety: none needed; read_bandwidth() runs on the pool it is given.
// Form: one JSON schema for all benches: bench, machine, ceilings, params, runs, median, peer.

#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "core/expected.h"
#include "core/thread_pool.h"

namespace shoal::cli {

// {"cpu", "usable_cores", "isa", "memory_bytes"}
nlohmann::ordered_json machine_facts();

// GB/s that the pool's threads read from memory together: the ceiling of decode. Best of three passes over
// 512 MiB, four streams a thread.
Expected<double> read_bandwidth(ThreadPool& pool);

struct Spread {
  double median = 0;
  double least = 0;
  double most = 0;
};

// values: at least one.
Spread spread_of(std::vector<double> values);
// {"median", "min", "max"}
nlohmann::ordered_json to_json(const Spread& spread);

}  // namespace shoal::cli
