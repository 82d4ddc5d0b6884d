// A worker's state as Prometheus reads it.
//
// Thread-safety: pure function of the engine's published snapshot.
// Names: as on vLLM's and SGLang's dashboards, with our prefix (docs/metrics.md).

#pragma once

#include <string>

#include "serving/worker.h"

namespace shoal::serving {

std::string metrics_text(const Worker& worker);

}  // namespace shoal::serving
