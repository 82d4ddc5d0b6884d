#include "serving/worker_metrics.h"

#include <fmt/format.h>

#include "wire/metrics_text.h"

namespace shoal::serving {
namespace {

using wire::MetricType;

void one(wire::MetricsWriter& out, std::string_view name, std::string_view help, MetricType type,
         double value) {
  out.family(name, help, type);
  out.sample({}, value);
}

void histogram(wire::MetricsWriter& out, std::string_view name, std::string_view help,
               const engine::Histogram& from) {
  out.family(name, help, MetricType::kHistogram);
  out.histogram({}, engine::Histogram::kBounds, from.buckets(), from.sum());
}

void write_pages(wire::MetricsWriter& out, const engine::EngineStats& stats) {
  out.family("shoal_kv_pages", "Pages of each KV group's pool by state", MetricType::kGauge);
  for (std::size_t i = 0; i < stats.kv.size(); ++i) {
    const engine::KvGroupStats& group = stats.kv[i];
    for (const auto& [state, pages] : {std::pair{"free", group.free},
                                       {"cached", group.cached},
                                       {"held", group.held},
                                       {"fenced", group.fenced}}) {
      out.sample({{"group", std::to_string(i)}, {"state", state}}, static_cast<double>(pages));
    }
  }
}

void write_retractions(wire::MetricsWriter& out, const engine::EngineStats& stats) {
  out.family("shoal_retractions_total", "Sequences that gave way, by how they come back",
             MetricType::kCounter);
  for (std::size_t way = 0; way < stats.retractions.size(); ++way)
    out.sample({{"kind", policy::retraction_name(static_cast<policy::Retraction>(way))}},
               static_cast<double>(stats.retractions[way]));
  one(out, "shoal_offloaded_bytes", "KV that ranks keep of sequences that gave way", MetricType::kGauge,
      static_cast<double>(stats.offloaded_bytes));
}

// One family of the ledger; value: of a charge.
template <typename F>
void traffic_family(wire::MetricsWriter& out, const engine::WorkerReport& worker, std::string_view name,
                    std::string_view help, F&& value) {
  out.family(name, help, MetricType::kCounter);
  for (const engine::RankReport& rank : worker.ranks) {
    for (std::size_t purpose = 0; purpose < rank.traffic.size(); ++purpose) {
      const comm::Charge& charge = rank.traffic[purpose];
      if (charge.calls == 0) continue;
      value(wire::MetricLabels{{"rank", std::to_string(rank.rank)},
                               {"purpose", comm::purpose_name(static_cast<comm::Purpose>(purpose))}},
            charge);
    }
  }
}

void write_worker(wire::MetricsWriter& out, const engine::WorkerReport& worker) {
  one(out, "shoal_worker_epoch", "Grows with every new start of the worker's ranks", MetricType::kGauge,
      static_cast<double>(worker.epoch.value));
  one(out, "shoal_worker_ready", "Whether all ranks are there", MetricType::kGauge, worker.lost.empty());
  if (worker.ranks.empty()) return;
  traffic_family(out, worker, "shoal_comm_bytes_total", "Bytes that left a rank, by what for and how far",
                 [&](wire::MetricLabels labels, const comm::Charge& charge) {
                   labels.emplace_back("scope", "");
                   for (const auto& [name, scope] :
                        {std::pair{"host", comm::Scope::kHost}, {"network", comm::Scope::kNetwork}}) {
                     labels.back().second = name;
                     out.sample(labels, static_cast<double>(charge.wire[static_cast<std::size_t>(scope)]));
                   }
                 });
  traffic_family(out, worker, "shoal_comm_payload_bytes_total", "Bytes that ranks asked to move",
                 [&](const wire::MetricLabels& labels, const comm::Charge& charge) {
                   out.sample(labels, static_cast<double>(charge.payload));
                 });
  traffic_family(out, worker, "shoal_comm_calls_total", "Collective operations and messages",
                 [&](const wire::MetricLabels& labels, const comm::Charge& charge) {
                   out.sample(labels, static_cast<double>(charge.calls));
                 });
  traffic_family(out, worker, "shoal_comm_hidden_seconds_total", "Time of moving bytes behind computation",
                 [&](const wire::MetricLabels& labels, const comm::Charge& charge) {
                   out.sample(labels, charge.hidden);
                 });
  traffic_family(out, worker, "shoal_comm_exposed_seconds_total", "Time that computation waited for bytes",
                 [&](const wire::MetricLabels& labels, const comm::Charge& charge) {
                   out.sample(labels, charge.exposed);
                 });
}

void write_rooms(wire::MetricsWriter& out, const handover::RoomStats& stats) {
  out.family("shoal_rooms", "Handovers that are open, by state", MetricType::kGauge);
  for (std::size_t state = 0; state < handover::kOpenStates; ++state)
    out.sample({{"state", std::string(handover::room_state_name(static_cast<handover::RoomState>(state)))}},
               static_cast<double>(stats.open[state]));
  out.family("shoal_rooms_ended_total", "Handovers that have ended, by how", MetricType::kCounter);
  out.sample({{"result", "success"}}, static_cast<double>(stats.succeeded));
  out.sample({{"result", "failed"}}, static_cast<double>(stats.failed));
  one(out, "shoal_room_reserved_page_seconds_total",
      "Pages reserved for KV that was still to come, times the seconds", MetricType::kCounter,
      stats.page_seconds);
}

}  // namespace

engine::WorkerReport worker_report(const Worker& worker) {
  engine::WorkerReport report = worker.engine->worker();
  if (worker.sender == nullptr || !report.ranks.empty()) return report;
  engine::RankReport& rank = report.ranks.emplace_back();
  rank.state = "ready";
  rank.traffic = engine::totals_of(worker.engine->ledger());
  return report;
}

std::optional<handover::RoomStats> room_stats(const Worker& worker) {
  if (worker.sender != nullptr) return worker.sender->stats();
  if (worker.receiver != nullptr) return worker.receiver->stats();
  return std::nullopt;
}

std::string metrics_text(const Worker& worker) {
  const engine::EngineStats stats = worker.engine->stats();
  wire::MetricsWriter out;
  one(out, "shoal_num_requests_running", "Sequences being computed", MetricType::kGauge, stats.running);
  one(out, "shoal_num_requests_waiting", "Requests waiting to be admitted", MetricType::kGauge,
      stats.waiting);
  one(out, "shoal_uncached_tokens_queued", "Prompt tokens still to be computed", MetricType::kGauge,
      static_cast<double>(stats.uncached_tokens_queued));
  write_pages(out, stats);
  one(out, "shoal_steps_total", "Forward passes", MetricType::kCounter, static_cast<double>(stats.steps));
  one(out, "shoal_prompt_tokens_total", "Prompt tokens of admitted requests", MetricType::kCounter,
      static_cast<double>(stats.prompt_tokens));
  one(out, "shoal_generation_tokens_total", "Tokens sampled", MetricType::kCounter,
      static_cast<double>(stats.generated_tokens));
  out.family("shoal_prefix_cache_hit_tokens_total", "Prompt tokens taken from the prefix cache",
             MetricType::kCounter);
  out.sample({{"tier", "l1"}}, static_cast<double>(stats.cached_tokens));
  out.family("shoal_requests_total", "Requests that have ended, by how", MetricType::kCounter);
  out.sample({{"result", "finished"}}, static_cast<double>(stats.requests_finished));
  out.sample({{"result", "cancelled"}}, static_cast<double>(stats.requests_cancelled));
  out.sample({{"result", "failed"}}, static_cast<double>(stats.requests_failed));
  one(out, "shoal_num_preemptions_total", "Sequences that gave their pages to others", MetricType::kCounter,
      static_cast<double>(stats.preemptions));
  write_retractions(out, stats);
  out.family("shoal_stage_busy_ratio", "Share of the last 10 s in which a pipeline stage computed",
             MetricType::kGauge);
  for (std::size_t stage = 0; stage < stats.stage_busy.size(); ++stage)
    out.sample({{"stage", std::to_string(stage)}}, stats.stage_busy[stage]);
  histogram(out, "shoal_request_queue_time_seconds", "Arrival to admission", stats.histograms.queue_time);
  histogram(out, "shoal_request_prefill_time_seconds", "Admission to first token",
            stats.histograms.prefill_time);
  histogram(out, "shoal_time_to_first_token_seconds", "Arrival to first token",
            stats.histograms.time_to_first_token);
  histogram(out, "shoal_inter_token_latency_seconds", "Between two tokens of one choice",
            stats.histograms.inter_token_latency);
  histogram(out, "shoal_e2e_request_latency_seconds", "Arrival to last event", stats.histograms.e2e_latency);
  write_worker(out, worker_report(worker));
  if (const auto rooms = room_stats(worker)) write_rooms(out, *rooms);
  return out.take();
}

}  // namespace shoal::serving
