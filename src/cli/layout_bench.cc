#include "cli/layout_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "cli/cli_report.h"
#include "cli/rank_launcher.h"
#include "core/clock.h"
#include "core/thread_pool.h"
#include "kernels/ceilings.h"
#include "kernels/isa.h"
#include "kernels/sampling_math.h"

namespace shoal::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::int32_t kWarmUpTokens = 512;

// What the requests of one run have been sent so far.
class Gathered {
 public:
  engine::OutputSink sink() {
    return [this, seen = false](engine::OutputEvent&& event) mutable {
      const std::lock_guard lock(mutex_);
      tokens_ += static_cast<std::int64_t>(event.tokens.size());
      if (!seen && !event.tokens.empty()) {
        seen = true;
        ++begun_;
        last_first_ = now();
        tokens_at_last_first_ = tokens_;
      }
      if (event.last) {
        ++ended_;
        end_ = now();
        if (!event.error.ok()) error_ = event.error;
        changed_.notify_all();
      }
    };
  }
  Status wait(std::int32_t requests) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::hours(1), [&] { return ended_ == requests; }))
      return {ErrorCode::kDeadline, "the engine has not answered within an hour"};
    return error_;
  }
  // Once all have ended. Every sequence had its first token at last_first().
  TimePoint last_first() const { return last_first_; }
  TimePoint end() const { return end_; }
  std::int64_t tokens_after_first() const { return tokens_ - tokens_at_last_first_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int32_t begun_ = 0;
  std::int32_t ended_ = 0;
  std::int64_t tokens_ = 0;
  std::int64_t tokens_at_last_first_ = 0;
  TimePoint last_first_{};
  TimePoint end_{};
  Status error_;
};

struct Phase {
  double tokens_per_s = 0;
  std::vector<double> stage_busy;  // part of the phase's time in which each stage computed
  double tp_exposed_ms = 0;        // a step, that the first rank waited for sums of its tensor group
};

struct Run {
  Phase prefill;
  Phase decode;
};

class LayoutRuns {
 public:
  LayoutRuns(engine::Engine& engine, const LayoutBench& bench) : engine_(engine), bench_(bench) {}

  // Caches, scratch and weights: a short prompt and a few tokens of each sequence.
  Status warm_up() {
    Gathered gathered;
    for (std::int32_t s = 0; s < bench_.batch; ++s)
      SHOAL_TRY(
          engine_.submit(request(s, std::min(bench_.prompt, kWarmUpTokens), 4), gathered.sink()).status());
    finished_ += static_cast<std::uint64_t>(bench_.batch);
    return gathered.wait(bench_.batch);
  }

  Expected<Run> measure() {
    SHOAL_TRY(engine_.flush_cache());
    Run run;
    SHOAL_TRY(measure_prefill(run.prefill));
    // The prompts are cached now, but for their last page.
    SHOAL_TRY(measure_decode(run.decode));
    return run;
  }

 private:
  engine::GenerateRequest request(std::int32_t sequence, std::int32_t prompt, std::int32_t max_tokens) const {
    engine::GenerateRequest request;
    const auto vocabulary = static_cast<std::uint64_t>(engine_.description().vocabulary);
    for (std::int32_t i = 0; i < prompt; ++i) {
      const std::uint64_t bits =
          kernels::noise_bits(1, static_cast<std::uint32_t>(sequence), static_cast<std::uint64_t>(i), 0);
      request.prompt.push_back(static_cast<TokenId>(bits % vocabulary));
    }
    request.max_tokens = max_tokens;
    request.ignore_eos = true;
    request.sampling.temperature = 0;
    return request;
  }

  Status submit_all(std::int32_t max_tokens, Gathered& gathered) {
    for (std::int32_t s = 0; s < bench_.batch; ++s)
      SHOAL_TRY(engine_.submit(request(s, bench_.prompt, max_tokens), gathered.sink()).status());
    finished_ += static_cast<std::uint64_t>(bench_.batch);
    return gathered.wait(bench_.batch);
  }

  Status measure_prefill(Phase& phase) {
    Gathered gathered;
    const Before before = so_far();
    const TimePoint begin = now();
    SHOAL_TRY(submit_all(1, gathered));
    const double seconds = seconds_between(begin, gathered.last_first());
    phase.tokens_per_s = static_cast<double>(bench_.batch) * bench_.prompt / seconds;
    add_since(before, seconds, phase);
    return {};
  }

  // From the moment when all sequences decode; the little before it counts into the stages' share alone.
  Status measure_decode(Phase& phase) {
    Gathered gathered;
    const Before before = so_far();
    const TimePoint begin = now();
    SHOAL_TRY(submit_all(bench_.generate + 1, gathered));
    phase.tokens_per_s = static_cast<double>(gathered.tokens_after_first()) /
                         seconds_between(gathered.last_first(), gathered.end());
    add_since(before, seconds_between(begin, gathered.end()), phase);
    return {};
  }

  // Once what the last plan took is among the figures: they follow a request's last event.
  engine::EngineStats settled() const {
    const TimePoint deadline = now() + std::chrono::seconds(1);
    for (;;) {
      engine::EngineStats stats = engine_.stats();
      if (stats.requests_finished >= finished_ || now() >= deadline) return stats;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  struct Before {
    std::uint64_t steps = 0;
    std::vector<double> stage_seconds;
    double tp_exposed = 0;
  };
  // The head's own ledger, which is read as it stands: others tell theirs with their beats.
  Before so_far() const {
    const engine::EngineStats stats = settled();
    const engine::WorkerReport worker = engine_.worker();
    Before before{stats.steps, stats.stage_seconds, 0};
    if (!worker.ranks.empty())
      before.tp_exposed = worker.ranks.front().traffic[static_cast<std::size_t>(comm::Purpose::kTp)].exposed;
    return before;
  }
  void add_since(const Before& before, double seconds, Phase& phase) const {
    const Before after = so_far();
    phase.stage_busy = after.stage_seconds;
    for (std::size_t stage = 0; stage < phase.stage_busy.size(); ++stage)
      phase.stage_busy[stage] = (phase.stage_busy[stage] - before.stage_seconds[stage]) / seconds;
    const auto steps = static_cast<double>(std::max<std::uint64_t>(after.steps - before.steps, 1));
    phase.tp_exposed_ms = (after.tp_exposed - before.tp_exposed) * 1e3 / steps;
  }

  engine::Engine& engine_;
  const LayoutBench& bench_;
  std::uint64_t finished_ = 0;  // requests so far
};

Expected<std::unique_ptr<engine::Engine>> start_engine(const LayoutBench& bench) {
  engine::EngineOptions options;
  bench.model.apply_to(options);
  const std::int64_t tokens = std::int64_t{bench.prompt} + std::max(bench.generate + 1, 4);
  options.kv_pages = (tokens + kPageTokens - 1) / kPageTokens * bench.batch;
  options.max_sequences = bench.batch;
  options.prefill_chunk = bench.chunk;
  bench.layout.apply_to(options);
  options.build = SHOAL_VERSION;
  options.launcher = std::make_shared<ProcessLauncher>("warn");
  SHOAL_ASSIGN(engine, engine::Engine::start(std::move(options)));
  if (tokens > engine->context())
    return Status(
        ErrorCode::kInvalidArgument,
        fmt::format("--prompt {} and --generate {} are more than the {} tokens that the model takes",
                    bench.prompt, bench.generate, engine->context()),
        "--generate");
  return std::move(engine);
}

Expected<kernels::Ceilings> ceilings_of(int threads) {
  ThreadPool pool({.threads = threads});
  SHOAL_ASSIGN(isa, kernels::chosen_isa());
  return kernels::measure_ceilings({.pool = &pool, .isa = isa});
}

Spread spread(const std::vector<Run>& runs, Phase Run::*phase) {
  std::vector<double> values;
  for (const Run& run : runs) values.push_back((run.*phase).tokens_per_s);
  return spread_of(std::move(values));
}

struct Report {
  int threads = 0;  // of each rank
  kernels::Ceilings before;
  kernels::Ceilings after;
  std::vector<Run> runs;
};

void print_json(const LayoutBench& bench, const Report& report) {
  ordered_json runs = ordered_json::array();
  for (const Run& run : report.runs)
    runs.push_back({{"prefill_tokens_per_s", run.prefill.tokens_per_s},
                    {"decode_tokens_per_s", run.decode.tokens_per_s},
                    {"prefill_stage_busy", run.prefill.stage_busy},
                    {"decode_stage_busy", run.decode.stage_busy},
                    {"prefill_tp_exposed_ms", run.prefill.tp_exposed_ms},
                    {"decode_tp_exposed_ms", run.decode.tp_exposed_ms}});
  const ordered_json json{{"bench", "engine"},
                          {"machine", machine_facts()},
                          {"ceilings", to_json(report.before, report.after)},
                          {"params",
                           {{"model", bench.model.model},
                            {"tp", bench.layout.degrees.tp},
                            {"pp", bench.layout.degrees.pp},
                            {"cp", bench.layout.degrees.cp},
                            {"layers", bench.layout.stage_layers},
                            {"tp_split", bench.layout.tp_split},
                            {"balance", bench.layout.balance},
                            {"prompt", bench.prompt},
                            {"generate", bench.generate},
                            {"batch", bench.batch},
                            {"chunk", bench.chunk},
                            {"threads", report.threads},
                            {"repeat", bench.repeat},
                            {"kv_dtype", bench.model.kv_dtype},
                            {"activations", bench.model.activations},
                            {"deterministic", bench.model.deterministic}}},
                          {"runs", runs},
                          {"median",
                           {{"prefill_tokens_per_s", to_json(spread(report.runs, &Run::prefill))},
                            {"decode_tokens_per_s", to_json(spread(report.runs, &Run::decode))}}},
                          {"peer", nullptr}};
  fmt::print("{}\n", json.dump(2));
}

std::string percents(const std::vector<double>& shares) {
  std::string text;
  for (const double share : shares) text += fmt::format("{}{:.0f}", text.empty() ? "" : ", ", 100 * share);
  return text;
}

void print_text(const LayoutBench& bench, const Report& report) {
  fmt::print("{}", to_text(report.before));
  fmt::print("Drift of the ceilings during the run: {:.1f} %\n", 100 * drift_of(report.before, report.after));
  fmt::print("tp {} x pp {} x cp {}, {} threads a rank, {} sequences\n", bench.layout.degrees.tp,
             bench.layout.degrees.pp, bench.layout.degrees.cp, report.threads, bench.batch);
  const Run& last = report.runs.back();
  for (const auto& [name, phase] : {std::pair{"prefill", &Run::prefill}, {"decode", &Run::decode}}) {
    const Spread figures = spread(report.runs, phase);
    fmt::print("{:8} {:8.2f} tokens/s [{:.2f} .. {:.2f}], stages busy {} %", name, figures.median,
               figures.least, figures.most, percents((last.*phase).stage_busy));
    if (bench.layout.degrees.tp > 1)
      fmt::print(", {:.2f} ms a step waited for sums", (last.*phase).tp_exposed_ms);
    fmt::print("\n");
  }
}

}  // namespace

int run_layout_bench(const LayoutBench& bench) {
  set_log_level(LogLevel::kWarn);
  auto engine = start_engine(bench);
  if (!engine.ok()) return complain("bench engine", engine.error());
  LayoutRuns runs(**engine, bench);
  Report report;
  report.threads = (*engine)->threads();
  const Degrees& degrees = bench.layout.degrees;
  const int threads = std::min(report.threads * degrees.tp * degrees.pp * degrees.cp, usable_cores());
  if (const Status warm = runs.warm_up(); !warm.ok()) return complain("bench engine", warm);
  auto before = ceilings_of(threads);
  if (!before.ok()) return complain("bench engine", before.error());
  for (std::int32_t i = 0; i < bench.repeat; ++i) {
    auto run = runs.measure();
    if (!run.ok()) return complain("bench engine", run.error());
    report.runs.push_back(*std::move(run));
  }
  auto after = ceilings_of(threads);
  if (!after.ok()) return complain("bench engine", after.error());
  report.before = *std::move(before);
  report.after = *std::move(after);
  if (bench.json) {
    print_json(bench, report);
  } else {
    print_text(bench, report);
  }
  return 0;
}

}  // namespace shoal::cli
