// What the gateway answers itself: models, health, metrics, and the admin API over workers.
//
// Thread-safety: of the gateway's loop.
// Errors: in OpenAI's shape, naming the field.

#pragma once

#include "gateway/gateway_core.h"
#include "wire/http_message.h"
#include "wire/response_writer.h"

namespace shoal::gateway {

// The models of all workers, and the aliases of those that are served, as OpenAI lists them.
void handle_models(GatewayCore& core, const wire::HttpRequest& request, const wire::ResponsePtr& response,
                   const Tenant* tenant);
// 200 while at least one worker takes requests.
void handle_health(GatewayCore& core, const wire::ResponsePtr& response);
void handle_metrics(GatewayCore& core, const wire::ResponsePtr& response);
// {"rid": "..."} to every worker; answers with the sum of what they have cancelled.
void handle_abort(GatewayCore& core, const wire::HttpRequest& request, const wire::ResponsePtr& response,
                  bool admin);

// GET /workers.
void handle_list_workers(GatewayCore& core, const wire::ResponsePtr& response);
// POST /workers {"url"}: added by an operator. With a report beside it, a registration or a heartbeat of the
// worker itself.
void handle_post_worker(GatewayCore& core, const wire::HttpRequest& request,
                        const wire::ResponsePtr& response, bool registered);
// POST /workers/drain {"url", "drain": true}.
void handle_drain_worker(GatewayCore& core, const wire::HttpRequest& request,
                         const wire::ResponsePtr& response);
// DELETE /workers?url=...: goes when its last request has ended; with &now=true at once, and its streams go
// on elsewhere.
void handle_delete_worker(GatewayCore& core, const wire::HttpRequest& request,
                          const wire::ResponsePtr& response);
// GET /get_server_info.
void handle_gateway_info(GatewayCore& core, const wire::ResponsePtr& response);

}  // namespace shoal::gateway
