// What a worker says of itself to gateways: card and load from the engine's published snapshot.
//
// Thread-safety: report_of() from any thread.

#pragma once

#include "serving/worker.h"
#include "wire/http_message.h"
#include "wire/response_writer.h"
#include "wire/worker_report.h"

namespace shoal::serving {

// Work waits and no step has ended for this long: something hangs. A step lasts at most a few token gaps.
inline constexpr double kStuckSeconds = 60;

// draining: it takes no new requests.
wire::WorkerReport report_of(const Worker& worker, bool draining);

}  // namespace shoal::serving
