// A worker's state as Prometheus reads it.
//
// Thread-safety: pure function of the engine's published snapshot.
// Names: as on vLLM's and SGLang's dashboards, with our prefix (docs/metrics.md).

#pragma once

#include <optional>
#include <string>

#include "serving/worker.h"

namespace shoal::serving {

std::string metrics_text(const Worker& worker);
// Of the engine, with what a worker of one rank has handed over.
engine::WorkerReport worker_report(const Worker& worker);
// Where the worker has a role that knows rooms.
std::optional<handover::RoomStats> room_stats(const Worker& worker);

}  // namespace shoal::serving
