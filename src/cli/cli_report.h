// What every benchmark's report holds besides its own figures: the machine, its ceilings, medians.
//
// Thread-safety: pure functions.
// Form: one JSON schema for all benches: bench, machine, ceilings, params, runs, median, peer.

#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "kernels/ceilings.h"

namespace shoal::cli {

// {"cpu", "usable_cores", "isa", "memory_bytes"}
nlohmann::ordered_json machine_facts();

// {"read": {"unit": "GB/s", "alone": [...], "together": n}, "f32 fma": {"unit": "TFLOP/s", ...}, ...}
nlohmann::ordered_json to_json(const kernels::Ceilings& ceilings);
// One line each, for people.
std::string to_text(const kernels::Ceilings& ceilings);
// {"before", "after", "drift"}: what was measured on both sides of a bench, and the largest change of a
// figure as a part of it. Figures beside a drift of more than a tenth say little.
nlohmann::ordered_json to_json(const kernels::Ceilings& before, const kernels::Ceilings& after);
double drift_of(const kernels::Ceilings& before, const kernels::Ceilings& after);

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
