// Health, state, metrics and control of a worker: what operators and gateways call.
//
// Thread-safety: handlers run on I/O threads; they read the engine's published snapshot.

#pragma once

#include "serving/worker.h"
#include "wire/http_message.h"
#include "wire/response_writer.h"

namespace shoal::serving {

// 200 while idle or making progress; 503 when waiting work has not moved for kStuckSeconds.
void handle_health(Worker& worker, const wire::HttpRequest& request, const wire::ResponsePtr& response);
// {"rid": "..."} ends one request by its name, {"abort_all": true} all of them. Answers {"cancelled": n}.
void handle_abort(Worker& worker, const wire::HttpRequest& request, const wire::ResponsePtr& response);
// Forgets cached prefixes; answers once done.
void handle_flush_cache(Worker& worker, wire::HttpRequest request, wire::ResponsePtr response);
// The state of /metrics and more as JSON.
void handle_server_info(Worker& worker, const wire::HttpRequest& request, const wire::ResponsePtr& response);
// Prometheus text.
void handle_metrics(Worker& worker, const wire::HttpRequest& request, const wire::ResponsePtr& response);

}  // namespace shoal::serving
