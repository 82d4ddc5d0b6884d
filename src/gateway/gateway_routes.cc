#include "gateway/gateway_routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/log.h"
#include "gateway/exchange.h"
#include "wire/api_error.h"
#include "wire/json.h"
#include "wire/json_writer.h"
#include "wire/metrics_text.h"
#include "wire/openai_response.h"

namespace shoal::gateway {
namespace {

using nlohmann::ordered_json;

void respond(const wire::ResponsePtr& response, const ordered_json& body, int status = 200) {
  response->respond(status, "application/json",
                    body.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
}

ordered_json json_of(const GatewayCore& core, const Worker& worker) {
  const policy::WorkerView& view = core.registry.views()[worker.index];
  ordered_json out = {{"url", worker.name},
                      {"source", name_of(worker.source)},
                      {"role", name_of(view.role)},
                      {"kind", worker.report  ? "shoal"
                               : worker.plain ? "plain"
                                              : "unknown"},
                      {"health", name_of(worker.health)},
                      {"available", view.available},
                      {"why", worker.why},
                      {"draining", worker.draining || worker.leaving},
                      {"models", worker.models},
                      {"in_flight", view.in_flight},
                      {"reserved_tokens", view.reserved_tokens},
                      {"requests", worker.requests},
                      {"failures", worker.failures},
                      {"prefill_tokens_per_s", worker.prefill_rate}};
  switch (worker.breaker.state(now())) {
    case policy::Breaker::State::kClosed:
      out["breaker"] = "closed";
      break;
    case policy::Breaker::State::kOpen:
      out["breaker"] = "open";
      break;
    case policy::Breaker::State::kHalfOpen:
      out["breaker"] = "half_open";
      break;
  }
  if (worker.heard != TimePoint{}) out["heard_seconds_ago"] = seconds_between(worker.heard, now());
  if (worker.report) out["report"] = ordered_json::parse(worker.report->to_json());
  return out;
}

wire::ModelCard card_of(const std::string& name, const Worker& worker) {
  wire::ModelCard card{name, 0, name, 0};
  if (worker.report) {
    card.created = worker.report->created;
    card.max_model_len = static_cast<int>(std::min<std::int64_t>(worker.report->context, INT32_MAX));
  }
  return card;
}

// The worker that "url" of the body or the query names, or an answer that says why not.
WorkerPtr named_worker(GatewayCore& core, const std::string& url, const wire::ResponsePtr& response) {
  WorkerPtr worker = core.registry.find(url);
  if (worker == nullptr)
    response->respond(wire::error_reply(
        404, "invalid_request_error",
        fmt::format("there is no worker {}", url.empty() ? "without a url" : url), {}, "url"));
  return worker;
}

}  // namespace

void handle_models(GatewayCore& core, const wire::HttpRequest& request, const wire::ResponsePtr& response,
                   const Tenant* tenant) {
  const auto models = core.registry.models();
  std::vector<wire::ModelCard> cards;
  const auto add = [&](const std::string& name, const std::string& served) {
    const auto it = models.find(served);
    if (it == models.end() || (tenant != nullptr && !tenant->may_use(name) && !tenant->may_use(served)))
      return;
    cards.push_back(card_of(name, *it->second));
  };
  for (const auto& [name, worker] : models) add(name, name);
  for (const auto& [alias, served] : core.options.aliases) add(alias, served);
  constexpr std::string_view kOne = "/v1/models/";
  if (!request.path.starts_with(kOne)) {
    response->respond(200, "application/json", wire::model_list(cards));
    return;
  }
  const std::string name = request.path.substr(kOne.size());
  const auto it = std::ranges::find(cards, name, &wire::ModelCard::id);
  if (it == cards.end()) {
    response->respond(wire::error_reply(
        Status(ErrorCode::kNotFound, fmt::format("the model '{}' is not served here", name), "model")));
    return;
  }
  response->respond(200, "application/json", wire::model_card(*it));
}

void handle_health(GatewayCore& core, const wire::ResponsePtr& response) {
  const auto views = core.registry.views();
  const auto available = std::ranges::count_if(views, &policy::WorkerView::available);
  if (core.draining) {
    response->respond(wire::error_reply(Status(ErrorCode::kUnavailable, "this gateway is shutting down")));
  } else if (!core.registry.answers()) {
    std::string why = "this gateway has no workers";
    if (available > 0) {
      const bool prefill = std::ranges::any_of(views, [](const policy::WorkerView& view) {
        return view.available && view.role == policy::WorkerRole::kPrefill;
      });
      why = fmt::format("an answer takes a prefill and a decode worker, and no {} worker takes requests",
                        prefill ? "decode" : "prefill");
    } else if (!views.empty()) {
      const Worker& first = *core.registry.at(0);
      why = fmt::format("none of {} workers takes requests; {}: {}", views.size(), first.name,
                        first.why.empty() ? "it drains, or its breaker is open" : first.why);
    }
    response->respond(wire::error_reply(Status(ErrorCode::kUnavailable, why)));
  } else {
    respond(response, {{"status", "ok"}, {"workers", views.size()}, {"available", available}});
  }
}

void handle_metrics(GatewayCore& core, const wire::ResponsePtr& response) {
  response->respond(
      200, wire::kMetricsContentType,
      core.metrics.text(core.registry, core.pairs.open(now()), core.queue, core.client->open_connections()));
}

void handle_abort(GatewayCore& core, const wire::HttpRequest& request, const wire::ResponsePtr& response,
                  bool admin) {
  auto document = wire::JsonDocument::parse(request.body);
  if (!document.ok()) return response->respond(wire::error_reply(document.error()));
  auto fields = document->fields();
  if (!fields.ok()) return response->respond(wire::error_reply(fields.error()));
  bool all = false;
  if (const Status status = fields->boolean("abort_all", all); !status.ok())
    return response->respond(wire::error_reply(status));
  if (all && !admin) {
    response->respond(wire::error_reply(403, "invalid_request_error",
                                        "abort_all ends the requests of others: it is the admin API's", {},
                                        "abort_all"));
    return;
  }
  struct Sum {
    wire::ResponsePtr response;
    std::int64_t cancelled = 0;
    explicit Sum(wire::ResponsePtr to) : response(std::move(to)) {}
    Sum(const Sum&) = delete;
    ~Sum() { response->respond(200, "application/json", fmt::format(R"({{"cancelled":{}}})", cancelled)); }
  };
  std::string rid;
  if (const Status status = fields->text("rid", rid); !status.ok())
    return response->respond(wire::error_reply(status));
  if (rid.empty() && !all)
    return response->respond(
        wire::error_reply(wire::field_error("rid", "must name a request, or abort_all must be true")));
  // Of the gateway's own: a client's may name rooms, which are others' as well.
  std::string body = "{\"abort_all\":true}";
  if (!all) {
    body = "{\"rid\":";
    wire::append_json_string(body, rid);
    body += '}';
  }
  // Answers when the last worker has: each call holds it.
  const auto sum = std::make_shared<Sum>(response);
  std::vector<std::shared_ptr<Exchange>> under_way;  // one that ends leaves the list
  for (const auto& [ignored, exchange] : core.exchanges) under_way.push_back(exchange);
  for (const auto& exchange : under_way) sum->cancelled += exchange->abort(rid, all) ? 1 : 0;
  for (const WorkerPtr& worker : core.registry.workers()) {
    // Of a pair the decode worker ends the answer, and by its room the prefill worker's part.
    if (worker->health != WorkerHealth::kUp || worker->plain ||
        worker->role() == policy::WorkerRole::kPrefill)
      continue;
    wire::HttpCall call;
    call.url = worker->url;
    call.url.path += "/abort_request";
    call.method = "POST";
    call.body = body;
    call.headers = {{"content-type", "application/json"}};
    if (!core.options.worker_api_key.empty())
      call.headers.emplace_back("authorization", "Bearer " + core.options.worker_api_key);
    call.idle_timeout = call.deadline = std::chrono::seconds(5);
    const auto said = std::make_shared<std::string>();
    core.client->start(std::move(call),
                       {nullptr,
                        [said](std::string_view bytes) {
                          *said += bytes;
                          return said->size() < 4096;
                        },
                        [said, sum](const Status& status) {
                          const auto answer = wire::JsonDocument::parse(*said);
                          std::int64_t cancelled = 0;
                          if (status.ok() && answer.ok() &&
                              answer->root()["cancelled"].get_int64().get(cancelled) == simdjson::SUCCESS)
                            sum->cancelled += cancelled;
                        }});
  }
}

void handle_list_workers(GatewayCore& core, const wire::ResponsePtr& response) {
  ordered_json workers = ordered_json::array();
  for (const WorkerPtr& worker : core.registry.workers()) workers.push_back(json_of(core, *worker));
  respond(response, {{"workers", std::move(workers)}});
}

void handle_post_worker(GatewayCore& core, const wire::HttpRequest& request,
                        const wire::ResponsePtr& response, bool registered) {
  auto document = wire::JsonDocument::parse(request.body);
  if (!document.ok()) return response->respond(wire::error_reply(document.error()));
  auto fields = document->fields();
  if (!fields.ok()) return response->respond(wire::error_reply(fields.error()));
  std::string url;
  if (const Status status = fields->text("url", url); !status.ok())
    return response->respond(wire::error_reply(status));
  if (url.empty())
    return response->respond(wire::error_reply(wire::field_error("url", "must say where the worker is")));
  if (!registered) {
    auto worker = core.registry.add(url, WorkerSource::kAdmin);
    if (!worker.ok()) return response->respond(wire::error_reply(worker.error()));
    respond(response, json_of(core, **worker));
    return;
  }
  auto report = wire::WorkerReport::parse(request.body);
  if (!report.ok()) return response->respond(wire::error_reply(report.error()));
  const bool leaves = report->state == "draining";
  WorkerPtr worker = core.registry.find(url);
  if (worker == nullptr && leaves) return respond(response, {{"status", "unknown"}});
  // One that still finishes its last requests goes on telling how it is.
  if (worker == nullptr && core.registry.is_dismissed(url, report->instance)) {
    response->respond(wire::error_reply(409, "invalid_request_error",
                                        "an operator has taken this worker away from this gateway; POST "
                                        "/workers with its url brings it back"));
    return;
  }
  if (worker == nullptr) {
    auto added = core.registry.add(url, WorkerSource::kRegistered);
    if (!added.ok()) return response->respond(wire::error_reply(added.error()));
    worker = *added;
  }
  core.registry.apply(worker, *std::move(report), now());
  // Its process is ending: a successor registers anew.
  if (leaves && worker->source == WorkerSource::kRegistered) core.registry.leave(worker);
  respond(response, {{"lease_ms", core.options.probes.lease.count()}});
}

void handle_drain_worker(GatewayCore& core, const wire::HttpRequest& request,
                         const wire::ResponsePtr& response) {
  auto document = wire::JsonDocument::parse(request.body);
  if (!document.ok()) return response->respond(wire::error_reply(document.error()));
  auto fields = document->fields();
  if (!fields.ok()) return response->respond(wire::error_reply(fields.error()));
  std::string url;
  bool drain = true;
  for (const Status& status : {fields->text("url", url), fields->boolean("drain", drain)}) {
    if (!status.ok()) return response->respond(wire::error_reply(status));
  }
  const WorkerPtr worker = named_worker(core, url, response);
  if (worker == nullptr) return;
  core.registry.set_draining(worker, drain);
  respond(response, json_of(core, *worker));
}

void handle_delete_worker(GatewayCore& core, const wire::HttpRequest& request,
                          const wire::ResponsePtr& response) {
  const WorkerPtr worker = named_worker(core, request.parameter("url").value_or(""), response);
  if (worker == nullptr) return;
  core.registry.dismiss(worker);  // else its next report would bring it back
  if (request.parameter("now").value_or("") == "true") {
    core.registry.remove(worker, "an operator has removed it");
  } else {
    core.registry.leave(worker);
  }
  const bool gone = !core.registry.holds(worker);
  respond(response, {{"url", worker->name}, {"status", gone ? "removed" : "draining"}}, gone ? 200 : 202);
}

void handle_gateway_info(GatewayCore& core, const wire::ResponsePtr& response) {
  ordered_json models = ordered_json::array();
  for (const auto& [name, worker] : core.registry.models()) models.push_back(name);
  respond(response, {{"role", "gateway"},
                     {"policy", policy::name_of(core.options.policy)},
                     {"models", models},
                     {"aliases", core.options.aliases},
                     {"workers", core.registry.workers().size()},
                     {"num_requests_running", core.queue.running()},
                     {"num_requests_waiting", core.queue.waiting()},
                     {"exchanges", core.exchanges.size()},
                     {"worker_connections", core.client->open_connections()}});
}

}  // namespace shoal::gateway
