#include "serving/admin_routes.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "serving/handover_requests.h"
#include "serving/report_of_worker.h"
#include "serving/worker_metrics.h"
#include "wire/api_error.h"
#include "wire/json.h"
#include "wire/metrics_text.h"

namespace shoal::serving {
namespace {

nlohmann::ordered_json pages_of(const engine::KvGroupStats& group) {
  return {{"capacity", group.capacity},
          {"free", group.free},
          {"cached", group.cached},
          {"held", group.held},
          {"fenced", group.fenced}};
}

// buckets: per bound, not cumulative; the last for what lies above them all.
nlohmann::ordered_json counts_of(const engine::Histogram& histogram) {
  return {{"count", histogram.count()}, {"sum_seconds", histogram.sum()}, {"buckets", histogram.buckets()}};
}

nlohmann::ordered_json traffic_of(const engine::TrafficTotals& traffic) {
  nlohmann::ordered_json by_purpose = nlohmann::ordered_json::object();
  for (std::size_t purpose = 0; purpose < traffic.size(); ++purpose) {
    const comm::Charge& charge = traffic[purpose];
    if (charge.calls == 0) continue;
    by_purpose[comm::purpose_name(static_cast<comm::Purpose>(purpose))] = {
        {"calls", charge.calls},
        {"payload_bytes", charge.payload},
        {"host_bytes", charge.wire[static_cast<std::size_t>(comm::Scope::kHost)]},
        {"network_bytes", charge.wire[static_cast<std::size_t>(comm::Scope::kNetwork)]},
        {"hidden_seconds", charge.hidden},
        {"exposed_seconds", charge.exposed}};
  }
  return by_purpose;
}

nlohmann::ordered_json worker_of(const engine::WorkerReport& report) {
  nlohmann::ordered_json worker;
  worker["epoch"] = report.epoch.value;
  worker["lost"] = report.lost;
  worker["ranks"] = nlohmann::ordered_json::array();
  for (const engine::RankReport& rank : report.ranks) {
    worker["ranks"].push_back({{"rank", rank.rank},
                               {"state", rank.state},
                               {"host", rank.host},
                               {"pid", rank.pid},
                               {"traffic", traffic_of(rank.traffic)}});
  }
  return worker;
}

nlohmann::ordered_json server_info(const Worker& worker) {
  const engine::Engine& engine = *worker.engine;
  const engine::EngineStats stats = engine.stats();
  const model::ModelDescription& model = engine.description();
  nlohmann::ordered_json info;
  info["model"] = worker.served_name;
  info["model_file"] = worker.model_file;
  info["architecture"] = model.architecture;
  info["fingerprint"] = model.fingerprint;
  info["parameters"] = model.parameters;
  info["context_length"] = engine.context();
  info["vocabulary"] = model.vocabulary;
  const wire::SamplingFields& defaults = worker.sampling_defaults;
  info["default_sampling"] = {{"temperature", defaults.temperature},
                              {"top_p", defaults.top_p},
                              {"top_k", defaults.top_k},
                              {"min_p", defaults.min_p},
                              {"repetition_penalty", defaults.repetition_penalty}};
  info["threads"] = engine.threads();
  info["weight_bytes"] = engine.weight_bytes();
  info["kv_bytes"] = engine.kv_bytes();
  info["kernels"] = engine.kernel_report();
  info["worker"] = worker_of(worker_report(worker));
  info["role"] = worker.sender != nullptr ? "prefill" : worker.receiver != nullptr ? "decode" : "both";
  if (worker.bootstrap != nullptr) info["bootstrap_port"] = worker.bootstrap->port();
  if (const auto rooms = room_stats(worker)) {
    for (std::size_t state = 0; state < handover::kOpenStates; ++state)
      info["rooms"][std::string(handover::room_state_name(static_cast<handover::RoomState>(state)))] =
          rooms->open[state];
    info["rooms"]["success"] = rooms->succeeded;
    info["rooms"]["failed"] = rooms->failed;
  }
  info["num_requests_running"] = stats.running;
  info["num_requests_waiting"] = stats.waiting;
  info["uncached_tokens_queued"] = stats.uncached_tokens_queued;
  info["kv_pages"] = nlohmann::ordered_json::array();
  for (const engine::KvGroupStats& group : stats.kv) info["kv_pages"].push_back(pages_of(group));
  info["steps_total"] = stats.steps;
  info["prompt_tokens_total"] = stats.prompt_tokens;
  info["cached_tokens_total"] = stats.cached_tokens;
  info["generation_tokens_total"] = stats.generated_tokens;
  info["requests_finished_total"] = stats.requests_finished;
  info["requests_cancelled_total"] = stats.requests_cancelled;
  info["requests_failed_total"] = stats.requests_failed;
  info["preemptions_total"] = stats.preemptions;
  for (std::size_t way = 0; way < stats.retractions.size(); ++way)
    info["retractions_total"][policy::retraction_name(static_cast<policy::Retraction>(way))] =
        stats.retractions[way];
  info["offloaded_bytes"] = stats.offloaded_bytes;
  info["seconds_since_progress"] = stats.seconds_since_progress;
  info["stage_busy_ratio"] = stats.stage_busy;
  info["histograms"]["bounds_seconds"] = engine::Histogram::kBounds;
  const engine::EngineHistograms& histograms = stats.histograms;
  for (const auto& [name, histogram] : {std::pair{"queue_time", &histograms.queue_time},
                                        {"prefill_time", &histograms.prefill_time},
                                        {"time_to_first_token", &histograms.time_to_first_token},
                                        {"inter_token_latency", &histograms.inter_token_latency},
                                        {"e2e_latency", &histograms.e2e_latency}}) {
    info["histograms"][name] = counts_of(*histogram);
  }
  return info;
}

}  // namespace

void handle_health(Worker& worker, const wire::HttpRequest&, const wire::ResponsePtr& response) {
  if (const std::string lost = worker.engine->worker().lost; !lost.empty()) {
    response->respond(wire::error_reply(
        Status(ErrorCode::kUnavailable, fmt::format("{}; the worker is starting anew", lost))));
    return;
  }
  const double waited = worker.engine->stats().seconds_since_progress;
  if (waited > kStuckSeconds) {
    response->respond(wire::error_reply(Status(
        ErrorCode::kUnavailable, fmt::format("work is waiting and no step has ended for {:.0f} s", waited))));
    return;
  }
  response->respond(200, "application/json", R"({"status":"ok"})");
}

void handle_abort(Worker& worker, const wire::HttpRequest& request, const wire::ResponsePtr& response) {
  auto document = wire::JsonDocument::parse(request.body);
  if (!document.ok()) return response->respond(wire::error_reply(document.error()));
  auto fields = document->fields();
  if (!fields.ok()) return response->respond(wire::error_reply(fields.error()));
  std::string rid;
  bool all = false;
  for (const Status& status : {fields->text("rid", rid), fields->boolean("abort_all", all)}) {
    if (!status.ok()) return response->respond(wire::error_reply(status));
  }
  const auto rooms = abandon_rooms(worker, *fields);
  if (!rooms.ok()) return response->respond(wire::error_reply(rooms.error()));
  if (rid.empty() && !all && *rooms == 0) {
    return response->respond(
        wire::error_reply(wire::field_error("rid", "must name a request, or abort_all must be true")));
  }
  // Asked first: what is accepted from here on is not meant.
  const std::uint64_t last = worker.text->last_posted();
  if (all) worker.sessions->abort_unread(last);
  // By the client's own name, else by an answer's id.
  const int cancelled =
      all ? worker.engine->cancel_all() : static_cast<int>(worker.sessions->abort(rid, last));
  response->respond(200, "application/json", fmt::format(R"({{"cancelled":{}}})", cancelled));
}

void handle_flush_cache(Worker& worker, wire::HttpRequest, wire::ResponsePtr response) {
  // On the text thread: it waits for the engine to finish its step.
  const bool posted = worker.text->post([&worker, response] {
    if (const Status status = worker.engine->flush_cache(); !status.ok()) {
      response->respond(wire::error_reply(status));
    } else {
      response->respond(200, "application/json", R"({"status":"flushed"})");
    }
  });
  if (!posted)
    response->respond(
        wire::error_reply(Status(ErrorCode::kExhausted, "too many requests are waiting to be read")));
}

void handle_server_info(Worker& worker, const wire::HttpRequest&, const wire::ResponsePtr& response) {
  response->respond(200, "application/json",
                    server_info(worker).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void handle_metrics(Worker& worker, const wire::HttpRequest&, const wire::ResponsePtr& response) {
  response->respond(200, wire::kMetricsContentType, metrics_text(worker));
}

}  // namespace shoal::serving
