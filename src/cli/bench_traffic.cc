#include "cli/bench_traffic.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/cli_layout.h"
#include "cli/cli_model.h"
#include "cli/cli_report.h"
#include "cli/rank_launcher.h"
#include "engine/executor.h"
#include "engine/traffic_steps.h"
#include "formats/checkpoint.h"
#include "layout/context_traffic.h"
#include "layout/stages.h"
#include "layout/traffic.h"
#include "parallel/shard.h"

namespace shoal::cli {
namespace {

using comm::Charge;
using comm::Purpose;
using engine::TrafficTotals;
using nlohmann::ordered_json;

constexpr Purpose kPurposes[] = {Purpose::kTp,      Purpose::kPp,     Purpose::kCpRing,
                                 Purpose::kCpMerge, Purpose::kSample, Purpose::kPlan};
// Ranks report their ledgers with their beats, every 500 ms.
constexpr std::chrono::milliseconds kReportTime{1500};
constexpr std::chrono::minutes kPhaseTime{10};
constexpr std::int64_t kUsualPrompt = 512;

struct TrafficFlags {
  std::string model;
  std::string kv_dtype = "bf16";
  std::string weights;
  int threads = 0;
  LayoutFlags layout;
  std::int32_t prompt = 0;  // 0: kUsualPrompt, or as many as the model's context leaves
  std::int32_t chunk = 512;
  std::int32_t generate = 16;
  std::int32_t batch = 1;
  bool pass_queries = false;
  bool json = false;
};

// Of one rank, by purpose, or of all together.
struct Predicted {
  StepTraffic traffic;
  const Traffic& of(Purpose purpose) const {
    switch (purpose) {
      case Purpose::kTp:
        return traffic.tp;
      case Purpose::kPp:
        return traffic.pp;
      case Purpose::kCpRing:
        return traffic.cp_ring;
      case Purpose::kCpMerge:
        return traffic.cp_merge;
      case Purpose::kSample:
        return traffic.sample;
      default:
        return traffic.plan;
    }
  }
};

struct Phase {
  std::string name;
  std::size_t steps = 0;
  double seconds = 0;
  std::vector<Predicted> predicted;    // by rank
  std::vector<TrafficTotals> counted;  // by rank

  Traffic predicted_total(Purpose purpose) const {
    Traffic total;
    for (const Predicted& rank : predicted) total += rank.of(purpose);
    return total;
  }
  Charge counted_total(Purpose purpose) const {
    Charge total;
    for (const TrafficTotals& rank : counted) {
      const Charge& charge = rank[static_cast<std::size_t>(purpose)];
      total.calls += charge.calls;
      total.payload += charge.payload;
      for (std::size_t scope = 0; scope < comm::kScopes; ++scope) total.wire[scope] += charge.wire[scope];
      total.hidden += charge.hidden;
      total.exposed += charge.exposed;
    }
    return total;
  }
  // Calls and payload of every rank and purpose.
  bool agrees() const {
    for (std::size_t rank = 0; rank < predicted.size(); ++rank) {
      for (const Purpose purpose : kPurposes) {
        const Traffic& expected = predicted[rank].of(purpose);
        const Charge& charge = counted[rank][static_cast<std::size_t>(purpose)];
        if (charge.calls != expected.calls || charge.payload != expected.payload) return false;
      }
    }
    return true;
  }
};

std::uint64_t wire_of(const Charge& charge) {
  std::uint64_t total = 0;
  for (const std::uint64_t bytes : charge.wire) total += bytes;
  return total;
}

Charge difference(const Charge& after, const Charge& before) {
  Charge charge;
  charge.calls = after.calls - before.calls;
  charge.payload = after.payload - before.payload;
  for (std::size_t scope = 0; scope < comm::kScopes; ++scope)
    charge.wire[scope] = after.wire[scope] - before.wire[scope];
  charge.hidden = after.hidden - before.hidden;
  charge.exposed = after.exposed - before.exposed;
  return charge;
}

// A worker's ranks, run by hand-written plans.
class TrafficBench {
 public:
  static Expected<std::unique_ptr<TrafficBench>> start(const TrafficFlags& flags) {
    SHOAL_ASSIGN(layout, Layout::make(flags.layout.degrees));
    std::unique_ptr<TrafficBench> bench(new TrafficBench(layout));
    engine::EngineOptions options;
    flags.layout.apply_to(options);
    options.model = flags.model;
    options.threads = flags.threads;
    options.kv_dtype = flags.kv_dtype == "f32" ? KvDType::kF32 : KvDType::kBf16;
    options.weights = dtype_from_name(flags.weights);
    options.context = flags.prompt + flags.generate;
    options.max_sequences = flags.batch;
    options.build = SHOAL_VERSION;
    options.launcher = std::make_shared<ProcessLauncher>("warn");
    engine::TrafficSteps::Options steps{flags.batch, flags.prompt, flags.chunk, flags.generate};
    steps.coordinates = layout.degrees().cp;
    steps.partition = options.cp_partition;
    steps.pass_queries = flags.pass_queries;
    options.kv_pages = engine::TrafficSteps(steps).pages();
    engine::Executor::Callbacks callbacks;
    callbacks.done = [raw = bench.get()](StepResult result) { raw->take(std::move(result)); };
    callbacks.lost = [raw = bench.get()](const Status& status) { raw->lose(status); };
    callbacks.recovered = [] {};
    SHOAL_ASSIGN(executor, engine::Executor::start(options, flags.batch, std::move(callbacks)));
    bench->executor_ = std::move(executor);
    const model::Model& model = *bench->executor_->loaded().model;
    steps.groups = static_cast<std::int32_t>(model.kv_groups().size());
    steps.vocabulary = model.description().vocabulary;
    bench->steps_.emplace(steps);
    bench->shape_.hidden = model.description().hidden;
    bench->shape_.stage_layers = model.stage_layers();
    bench->shape_.vocabulary_ends = model.vocabulary_ends();
    SHOAL_TRY(bench->describe_context(model, flags, options.kv_dtype));
    return bench;
  }

  const TrafficShape& shape() const { return shape_; }

  Expected<Phase> prefill() { return run("prefill", steps_->prefill()); }
  Expected<Phase> decode() { return run("decode", steps_->decode()); }

 private:
  explicit TrafficBench(const Layout& layout) { shape_.layout = layout; }

  void take(StepResult result) {
    const std::lock_guard lock(mutex_);
    if (status_.ok() && !result.error.empty()) status_ = Status(ErrorCode::kUnavailable, result.error);
    ++answered_;
    changed_.notify_all();
  }
  void lose(const Status& status) {
    const std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = status;
    changed_.notify_all();
  }

  // Until no more than `open` plans are unanswered.
  Status await(std::size_t open) {
    std::unique_lock lock(mutex_);
    const bool done =
        changed_.wait_for(lock, kPhaseTime, [&] { return !status_.ok() || pushed_ - answered_ <= open; });
    if (!done) return {ErrorCode::kDeadline, "the ranks did not answer a step plan within 10 minutes"};
    return status_;
  }

  std::vector<TrafficTotals> ledgers() const {
    std::this_thread::sleep_for(kReportTime);
    std::vector<TrafficTotals> totals;
    for (const engine::RankReport& rank : executor_->report().ranks) totals.push_back(rank.traffic);
    totals.resize(static_cast<std::size_t>(shape_.layout.ranks()));
    return totals;
  }

  Expected<Phase> run(const char* name, std::vector<StepPlan> plans) {
    Phase phase;
    phase.name = name;
    phase.steps = plans.size();
    phase.predicted.resize(static_cast<std::size_t>(shape_.layout.ranks()));
    for (const StepPlan& plan : plans) predict(plan, phase);
    const auto before = ledgers();
    const TimePoint begin = now();
    for (StepPlan& plan : plans) {
      SHOAL_TRY(await(static_cast<std::size_t>(shape_.layout.plans_in_flight()) - 1));
      {
        const std::lock_guard lock(mutex_);
        ++pushed_;
      }
      executor_->push(std::move(plan));
    }
    SHOAL_TRY(await(0));
    phase.seconds = seconds_between(begin, now());
    phase.counted = ledgers();
    for (std::size_t rank = 0; rank < before.size(); ++rank) {
      for (std::size_t purpose = 0; purpose < before[rank].size(); ++purpose)
        phase.counted[rank][purpose] = difference(phase.counted[rank][purpose], before[rank][purpose]);
    }
    return phase;
  }

  void predict(const StepPlan& plan, Phase& phase) {
    const Layout& layout = shape_.layout;
    if (layout.degrees().cp > 1) tables_.apply(plan);
    for (std::int32_t rank = 0; rank < layout.ranks(); ++rank) {
      const auto coordinate = static_cast<std::size_t>(layout.coordinate(rank).cp);
      StepTraffic& traffic = phase.predicted[static_cast<std::size_t>(rank)].traffic;
      traffic += step_traffic(shape_, StepRows::of(plan.sub_batches[coordinate]), rank);
      if (layout.degrees().cp == 1) continue;
      const ContextStepTraffic moved =
          context_traffic(contexts_[static_cast<std::size_t>(rank)], tables_, plan);
      traffic.cp_ring += moved.ring;
      traffic.cp_merge += moved.merge;
    }
    if (layout.ranks() == 1) return;
    phase.predicted.front().traffic.plan += plan_traffic(layout, plan);
    for (std::int32_t cp = 0; cp < layout.degrees().cp; ++cp) {
      const std::int32_t sampling = layout.rank({0, layout.degrees().pp - 1, cp, 0});
      const StepRows rows = StepRows::of(plan.sub_batches[static_cast<std::size_t>(cp)]);
      phase.predicted[static_cast<std::size_t>(sampling)].traffic.plan += result_traffic(layout, rows, cp);
    }
  }

  // What decides the traffic between coordinates, of each rank.
  Status describe_context(const model::Model& model, const TrafficFlags& flags, KvDType kv_dtype) {
    const Layout& layout = shape_.layout;
    if (flags.layout.cp_force > 0 && flags.layout.cp_force != layout.degrees().cp)
      return {ErrorCode::kInvalidArgument,
              fmt::format("--cp-force {}: all coordinates, {}, share every prompt here",
                          flags.layout.cp_force, layout.degrees().cp)};
    if (layout.degrees().cp == 1) return {};
    const model::ModelDescription& description = model.description();
    const model::AttentionBlock& block = description.layers.front().attention;
    tables_ = ContextTables(static_cast<std::int32_t>(description.kv_groups.size()));
    for (std::int32_t rank = 0; rank < layout.ranks(); ++rank) {
      const Coordinate at = layout.coordinate(rank);
      SHOAL_ASSIGN(shard, parallel::attention_shard({block.query_heads, block.kv_heads, block.head_dim}, true,
                                                    {layout.degrees().tp, at.tp, flags.layout.tp_split}));
      ContextShape shape;
      shape.coordinate = at.cp;
      shape.query_heads = static_cast<std::int32_t>(shard.query_heads.size());
      shape.kv_heads = static_cast<std::int32_t>(shard.kv_heads.size());
      shape.head_dim = block.head_dim;
      shape.kv_value_bytes = kv_dtype == KvDType::kBf16 ? 2 : 4;
      shape.groups = description.kv_groups;
      shape.last_stage = at.pp + 1 == layout.degrees().pp;
      const LayerRange stage = layers_of_stage(model.stage_layers(), at.pp);
      for (std::int32_t layer = stage.begin; layer < stage.end; ++layer)
        shape.layer_groups.push_back(description.layers[static_cast<std::size_t>(layer)].attention.kv_group);
      contexts_.push_back(std::move(shape));
    }
    return {};
  }

  TrafficShape shape_;
  std::vector<ContextShape> contexts_;  // by rank, with several coordinates
  ContextTables tables_{1};
  std::optional<engine::TrafficSteps> steps_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Status status_;
  std::size_t pushed_ = 0;
  std::size_t answered_ = 0;
  std::unique_ptr<engine::Executor> executor_;  // last: it calls back into what is above
};

void print_text(const TrafficBench& bench, const std::vector<Phase>& phases) {
  fmt::print("{}, layers {}, hidden size {}; bytes and seconds of all ranks together\n",
             bench.shape().layout.to_string(), fmt::join(bench.shape().stage_layers, "+"),
             bench.shape().hidden);
  fmt::print("{:8} {:7} {:>11} {:>14} {:>14} {:>14} {:>14} {:>10} {:>10}\n", "phase", "purpose", "calls/step",
             "payload", "counted", "wire", "counted", "hidden ms", "exposed ms");
  for (const Phase& phase : phases) {
    for (const Purpose purpose : kPurposes) {
      const Traffic expected = phase.predicted_total(purpose);
      const Charge counted = phase.counted_total(purpose);
      fmt::print("{:8} {:7} {:>11.1f} {:>14} {:>14} {:>14} {:>14} {:>10.2f} {:>10.2f}\n", phase.name,
                 comm::purpose_name(purpose),
                 static_cast<double>(counted.calls) / static_cast<double>(phase.steps), expected.payload,
                 counted.payload, expected.wire, wire_of(counted), counted.hidden * 1e3,
                 counted.exposed * 1e3);
    }
    fmt::print("{:8} {} steps in {:.3f} s; calls and payload {} the formulas on every rank\n", phase.name,
               phase.steps, phase.seconds, phase.agrees() ? "equal" : "DIFFER FROM");
  }
}

ordered_json json_of(const Traffic& predicted, const Charge& counted) {
  return {
      {"predicted",
       {{"calls", predicted.calls}, {"payload_bytes", predicted.payload}, {"wire_bytes", predicted.wire}}},
      {"counted",
       {{"calls", counted.calls},
        {"payload_bytes", counted.payload},
        {"wire_bytes", wire_of(counted)},
        {"hidden_seconds", counted.hidden},
        {"exposed_seconds", counted.exposed}}}};
}

void print_json(const TrafficFlags& flags, const TrafficBench& bench, const std::vector<Phase>& phases) {
  const Degrees& degrees = bench.shape().layout.degrees();
  ordered_json report{{"bench", "traffic"},
                      {"machine", machine_facts()},
                      {"ceilings", nullptr},
                      {"params",
                       {{"model", std::filesystem::path(flags.model).filename().string()},
                        {"tp", degrees.tp},
                        {"pp", degrees.pp},
                        {"tp_split", flags.layout.tp_split},
                        {"layers", bench.shape().stage_layers},
                        {"prompt", flags.prompt},
                        {"chunk", flags.chunk},
                        {"generate", flags.generate},
                        {"batch", flags.batch}}},
                      {"runs", ordered_json::array()},
                      {"median", nullptr},
                      {"peer", nullptr}};
  for (const Phase& phase : phases) {
    ordered_json purposes, ranks = ordered_json::array();
    for (const Purpose purpose : kPurposes)
      purposes[comm::purpose_name(purpose)] =
          json_of(phase.predicted_total(purpose), phase.counted_total(purpose));
    for (std::size_t rank = 0; rank < phase.predicted.size(); ++rank) {
      ordered_json one;
      for (const Purpose purpose : kPurposes)
        one[comm::purpose_name(purpose)] = json_of(phase.predicted[rank].of(purpose),
                                                   phase.counted[rank][static_cast<std::size_t>(purpose)]);
      ranks.push_back(std::move(one));
    }
    report["runs"].push_back({{"phase", phase.name},
                              {"steps", phase.steps},
                              {"seconds", phase.seconds},
                              {"equal", phase.agrees()},
                              {"purposes", std::move(purposes)},
                              {"ranks", std::move(ranks)}});
  }
  fmt::print("{}\n", report.dump(2));
}

// With a prompt that the model has room for, where none was asked for.
Status choose_prompt(TrafficFlags& flags) {
  if (flags.prompt > 0) return {};
  SHOAL_ASSIGN(checkpoint, formats::Checkpoint::open(flags.model));
  const std::int64_t room = checkpoint.metadata().context - flags.generate;
  if (room < 1)
    return {ErrorCode::kInvalidArgument,
            fmt::format("--generate {}: the model's context of {} tokens leaves no room for a prompt",
                        flags.generate, checkpoint.metadata().context),
            "--generate"};
  flags.prompt = static_cast<std::int32_t>(std::min(kUsualPrompt, room));
  return {};
}

int run_bench_traffic(TrafficFlags flags) {
  if (const Status chosen = choose_prompt(flags); !chosen.ok()) return complain("bench traffic", chosen);
  auto bench = TrafficBench::start(flags);
  if (!bench.ok()) return complain("bench traffic", bench.error());
  std::vector<Phase> phases;
  auto prefill = (*bench)->prefill();
  if (!prefill.ok()) return complain("bench traffic", prefill.error());
  phases.push_back(*std::move(prefill));
  auto decode = (*bench)->decode();
  if (!decode.ok()) return complain("bench traffic", decode.error());
  phases.push_back(*std::move(decode));
  if (flags.json) {
    print_json(flags, **bench, phases);
  } else {
    print_text(**bench, phases);
  }
  return std::all_of(phases.begin(), phases.end(), [](const Phase& phase) { return phase.agrees(); }) ? 0 : 1;
}

}  // namespace

void add_bench_traffic(CLI::App& bench, int& exit_code) {
  auto flags = std::make_shared<TrafficFlags>();
  CLI::App* command = bench.add_subcommand(
      "traffic",
      "What a layout moves between its ranks, by purpose: predicted, counted, and the time it takes");
  command->add_option("MODEL", flags->model, "GGUF file or Hugging Face folder")->required();
  add_layout_flags(*command, flags->layout);
  command
      ->add_option("--prompt", flags->prompt,
                   "Tokens of each prompt; default: 512, or what the model's context leaves")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--chunk", flags->chunk, "Of them, in one step")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 16));
  command->add_option("--generate", flags->generate, "Steps of one token for every sequence")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 16));
  command->add_option("--batch", flags->batch, "Sequences")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  command->add_option("--kv-dtype", flags->kv_dtype, "bf16 or f32")
      ->capture_default_str()
      ->check(CLI::IsMember({"bf16", "f32"}));
  command->add_option("--weights", flags->weights, "Pack f32, f16 and bf16 matrices as this type")
      ->check(CLI::IsMember({"bf16", "q8_0", "q4_0"}));
  command->add_option("--threads", flags->threads, "Of each rank; default: the cores dealt out")
      ->check(CLI::Range(1, 4096));
  command->add_flag("--pass-queries", flags->pass_queries,
                    "With --cp: queries of prompts go to where pages are, instead of pages to queries");
  command->add_flag("--json", flags->json, "A report for scripts");
  command->callback([flags, &exit_code] { exit_code = run_bench_traffic(*flags); });
}

}  // namespace shoal::cli
