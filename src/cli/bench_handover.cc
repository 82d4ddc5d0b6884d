#include "cli/bench_handover.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/cli_model.h"
#include "cli/cli_report.h"
#include "cli/handover_flags.h"
#include "cli/handover_runs.h"
#include "cli/plain_stream.h"
#include "core/thread_pool.h"
#include "kernels/isa.h"

namespace shoal::cli {
namespace {

using nlohmann::ordered_json;

struct BenchFlags {
  ModelFlags model;
  std::vector<std::string> pairs = {"1:1"};
  std::int32_t prompt = 4000;
  std::int32_t generate = 32;
  std::int32_t chunk = 0;
  std::int32_t repeat = 5;
  std::string checksum = "sampled";
  std::string carrier = "auto";
  bool json = false;
};

struct Pair {
  std::string name;
  Degrees prefill;
  Degrees decode;
};

// One round over everything; seconds and GB/s.
struct Round {
  RequestTimes alone;
  RequestTimes cold;     // both caches: as a request that is new to everybody
  RequestTimes push;     // the prompt known to prefill alone: KV moves, and little else happens
  RequestTimes control;  // known to both: as `push`, and nothing moves
  StreamFigures stream;
  StreamFigures copy;

  double push_rate() const { return static_cast<double>(push.bytes) / 1e9 / push.moving; }
  double push_cpu() const {
    const double gigabytes = static_cast<double>(push.bytes - std::min(push.bytes, control.bytes)) / 1e9;
    return gigabytes > 0 ? std::max(0.0, push.cpu - control.cpu) / gigabytes : 0;
  }
  double of_stream() const { return push_rate() / stream.gb_per_s; }
  double of_copy() const { return push_rate() / copy.gb_per_s; }
  double exposed_share() const { return cold.exposed / push.moving; }
  double added() const { return cold.first_token / alone.first_token - 1; }
  double steady_gap() const {
    std::vector<double> gaps = cold.gaps;
    if (gaps.empty()) return 0;
    std::ranges::sort(gaps);
    return gaps[gaps.size() / 2];
  }
  double second_late() const { return cold.second_gap - steady_gap(); }
};

struct PairReport {
  std::string name;
  std::vector<Round> rounds;

  template <typename F>
  Spread spread(F&& figure) const {
    std::vector<double> values;
    for (const Round& round : rounds) values.push_back(figure(round));
    return spread_of(std::move(values));
  }
};

Expected<Pair> pair_of(const std::string& text) {
  const auto bad = [&](const std::string& sentence) {
    return Status(ErrorCode::kInvalidArgument, fmt::format("--pairs {}: {}", text, sentence), "--pairs");
  };
  const auto colon = text.find(':');
  if (colon == std::string::npos) return bad("it must be PREFILL:DECODE, as 1:1 or tp2:pp2");
  const auto prefill = layout_from_name(text.substr(0, colon));
  const auto decode = layout_from_name(text.substr(colon + 1));
  if (!prefill || !decode) return bad("a layout is 1, or degrees as tp2, pp2, cp2 or tp2pp2");
  for (const auto& [role, degrees] : {std::pair{"prefill", *prefill}, {"decode", *decode}}) {
    HandoverFlags serves;
    serves.role = role;
    serves.token_file = "drawn";
    SHOAL_TRY(serves.check(degrees));
  }
  return Pair{text, *prefill, *decode};
}

class HandoverBench {
 public:
  explicit HandoverBench(const BenchFlags& flags) : flags_(flags) {}

  Status run() {
    std::vector<Pair> pairs;
    for (const std::string& text : flags_.pairs) {
      SHOAL_ASSIGN(pair, pair_of(text));
      pairs.push_back(std::move(pair));
    }
    SHOAL_ASSIGN(before, measure_machine());
    before_ = std::move(before);
    for (const Pair& pair : pairs) SHOAL_TRY(run_pair(pair));
    SHOAL_ASSIGN(after, measure_machine());
    after_ = std::move(after);
    return {};
  }

  void print_text() const {
    fmt::print("{}", to_text(before_));
    fmt::print("Drift of the ceilings during the run: {:.1f} %\n", 100 * drift_of(before_, after_));
    fmt::print("{} tokens, then {}; {} thread(s) a rank; KV {}; medians of {} [least .. most]\n",
               flags_.prompt, flags_.generate, flags_.model.threads,
               flags_.carrier == "auto" ? "read from memory" : "sent over TCP", flags_.repeat);
    for (const PairReport& report : reports_) print_pair(report);
  }

  void print_json() const {
    ordered_json pairs = ordered_json::array();
    ordered_json medians = ordered_json::array();
    for (const PairReport& report : reports_) {
      ordered_json rounds = ordered_json::array();
      for (const Round& round : report.rounds) rounds.push_back(round_json(round));
      pairs.push_back({{"pair", report.name}, {"rounds", std::move(rounds)}});
      medians.push_back(median_json(report));
    }
    const ordered_json json{{"bench", "handover"},
                            {"machine", machine_facts()},
                            {"ceilings", shoal::cli::to_json(before_, after_)},
                            {"params",
                             {{"model", flags_.model.model},
                              {"prompt", flags_.prompt},
                              {"generate", flags_.generate},
                              {"chunk", flags_.chunk},
                              {"repeat", flags_.repeat},
                              {"threads", flags_.model.threads},
                              {"kv_dtype", flags_.model.kv_dtype},
                              {"kv_checksum", flags_.checksum},
                              {"kv_carrier", flags_.carrier},
                              {"deterministic", flags_.model.deterministic}}},
                            {"runs", std::move(pairs)},
                            {"median", std::move(medians)},
                            {"peer", nullptr}};
    fmt::print("{}\n", json.dump(2));
  }

 private:
  static Expected<kernels::Ceilings> measure_machine() {
    ThreadPool pool({.threads = usable_cores()});
    SHOAL_ASSIGN(isa, kernels::chosen_isa());
    return kernels::measure_ceilings({.pool = &pool, .isa = isa});
  }

  Status run_pair(const Pair& pair) {
    HandoverRuns::Options options;
    options.model = flags_.model;
    options.prefill = pair.prefill;
    options.decode = pair.decode;
    options.prompt = flags_.prompt;
    options.generate = flags_.generate;
    options.chunk = flags_.chunk;
    options.checksums =
        handover::checksums_from_name(flags_.checksum).value_or(handover::Checksums::kSampled);
    options.by_memory = flags_.carrier == "auto";
    SHOAL_ASSIGN(runs, HandoverRuns::start(options));
    // Weights and scratch are touched, once by each worker.
    SHOAL_TRY(runs->together({}).status());
    PairReport& report = reports_.emplace_back();
    report.name = pair.name;
    for (std::int32_t i = 0; i < flags_.repeat; ++i) {
      SHOAL_ASSIGN(round, one_round(*runs));
      report.rounds.push_back(std::move(round));
    }
    return {};
  }

  // Everything in turn, so that a change of the machine's speed meets all of it.
  static Expected<Round> one_round(HandoverRuns& runs) {
    Round round;
    SHOAL_ASSIGN(alone, runs.alone());
    round.alone = std::move(alone);
    SHOAL_ASSIGN(cold, runs.together({}));
    round.cold = std::move(cold);
    SHOAL_ASSIGN(push, runs.together({.prefill = true}));
    round.push = std::move(push);
    SHOAL_ASSIGN(control, runs.together({.prefill = true, .decode = true}));
    round.control = std::move(control);
    SHOAL_ASSIGN(stream, measure_plain_stream(runs.prompt_bytes()));
    round.stream = stream;
    round.copy = measure_copy(runs.prompt_bytes());
    return round;
  }

  static void print_pair(const PairReport& report) {
    const auto line = [&](const char* what, const char* unit, double scale, auto&& figure) {
      const Spread spread = report.spread(figure);
      fmt::print("  {:44} {:9.2f} [{:.2f} .. {:.2f}] {}\n", what, scale * spread.median, scale * spread.least,
                 scale * spread.most, unit);
    };
    fmt::print("{}\n", report.name);
    line("KV", "MB", 1e-6, [](const Round& r) { return static_cast<double>(r.push.bytes); });
    line("moved alone", "GB/s", 1, [](const Round& r) { return r.push_rate(); });
    line("a plain stream", "GB/s", 1, [](const Round& r) { return r.stream.gb_per_s; });
    line("  of it", "%", 100, [](const Round& r) { return r.of_stream(); });
    line("a copy in memory", "GB/s", 1, [](const Round& r) { return r.copy.gb_per_s; });
    line("CPU of both workers", "s a GB", 1, [](const Round& r) { return r.push_cpu(); });
    line("CPU of the plain stream", "s a GB", 1, [](const Round& r) { return r.stream.cpu_per_gb; });
    line("waited for, behind the last layer", "ms", 1e3, [](const Round& r) { return r.cold.exposed; });
    line("  of what moving it alone takes", "%", 100, [](const Round& r) { return r.exposed_share(); });
    line("first token, alone", "ms", 1e3, [](const Round& r) { return r.alone.first_token; });
    line("first token, by two workers", "ms", 1e3, [](const Round& r) { return r.cold.first_token; });
    line("  more", "%", 100, [](const Round& r) { return r.added(); });
    line("from the first to the second", "ms", 1e3, [](const Round& r) { return r.cold.second_gap; });
    line("from token to token", "ms", 1e3, [](const Round& r) { return r.steady_gap(); });
  }

  static ordered_json times_json(const RequestTimes& times) {
    return {{"first_token_s", times.first_token},
            {"second_gap_s", times.second_gap},
            {"gaps_s", times.gaps},
            {"bytes", times.bytes},
            {"moving_s", times.moving},
            {"exposed_s", times.exposed},
            {"cpu_s", times.cpu}};
  }
  static ordered_json stream_json(const StreamFigures& figures) {
    return {{"gb_per_s", figures.gb_per_s}, {"cpu_s_per_gb", figures.cpu_per_gb}};
  }
  static ordered_json round_json(const Round& round) {
    return {{"alone", times_json(round.alone)},    {"cold", times_json(round.cold)},
            {"push", times_json(round.push)},      {"control", times_json(round.control)},
            {"stream", stream_json(round.stream)}, {"copy", stream_json(round.copy)}};
  }
  static ordered_json median_json(const PairReport& report) {
    const auto of = [&](auto&& figure) { return shoal::cli::to_json(report.spread(figure)); };
    return {{"pair", report.name},
            {"bytes", report.rounds.front().push.bytes},
            {"push_gb_per_s", of([](const Round& r) { return r.push_rate(); })},
            {"push_of_stream", of([](const Round& r) { return r.of_stream(); })},
            {"push_of_copy", of([](const Round& r) { return r.of_copy(); })},
            {"push_cpu_s_per_gb", of([](const Round& r) { return r.push_cpu(); })},
            {"exposed_s", of([](const Round& r) { return r.cold.exposed; })},
            {"exposed_of_transfer", of([](const Round& r) { return r.exposed_share(); })},
            {"first_token_alone_s", of([](const Round& r) { return r.alone.first_token; })},
            {"first_token_s", of([](const Round& r) { return r.cold.first_token; })},
            {"first_token_added", of([](const Round& r) { return r.added(); })},
            {"second_gap_s", of([](const Round& r) { return r.cold.second_gap; })},
            {"second_late_s", of([](const Round& r) { return r.second_late(); })},
            {"steady_gap_s", of([](const Round& r) { return r.steady_gap(); })}};
  }

  const BenchFlags& flags_;
  kernels::Ceilings before_;
  kernels::Ceilings after_;
  std::vector<PairReport> reports_;
};

int run_bench_handover(const BenchFlags& flags) {
  set_log_level(LogLevel::kWarn);
  HandoverBench bench(flags);
  if (const Status status = bench.run(); !status.ok()) return complain("bench handover", status);
  if (flags.json) {
    bench.print_json();
  } else {
    bench.print_text();
  }
  return 0;
}

}  // namespace

std::optional<Degrees> layout_from_name(const std::string& name) {
  Degrees degrees;
  if (name == "1") return degrees;
  std::string_view rest = name;
  for (const auto& [key, degree] : {std::pair{"tp", &degrees.tp}, {"pp", &degrees.pp}, {"cp", &degrees.cp}}) {
    if (!rest.starts_with(key)) continue;
    rest.remove_prefix(2);
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), *degree);
    if (error != std::errc() || *degree < 1 || *degree > 64) return std::nullopt;
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  }
  if (!rest.empty() || name.empty()) return std::nullopt;
  return degrees;
}

void add_bench_handover(CLI::App& bench, int& exit_code) {
  auto flags = std::make_shared<BenchFlags>();
  flags->model.threads = 1;
  CLI::App* command = bench.add_subcommand(
      "handover", "A prompt computed by one worker and answered by another, beside one worker alone");
  add_model_flags(*command, flags->model);
  command
      ->add_option("--pairs", flags->pairs,
                   "Layouts of the two workers, as 1:1,tp2:1; both are this process's")
      ->delimiter(',')
      ->capture_default_str()
      ->type_name("PREFILL:DECODE,...");
  // From three pages on there is something to move where only the prompt's end is computed.
  command->add_option("--prompt", flags->prompt, "Tokens of the prompt")
      ->capture_default_str()
      ->check(CLI::Range(3 * kPageTokens, 1 << 24));
  command->add_option("--generate", flags->generate, "Tokens of the answer")
      ->capture_default_str()
      ->check(CLI::Range(3, 1 << 16));
  command->add_option("--chunk", flags->chunk, "Tokens of the prompt in one step; default: by time")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--repeat", flags->repeat, "Rounds over everything, of which the median counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->add_option("--kv-checksum", flags->checksum, "Which writes of KV are checked: off, sampled, full")
      ->capture_default_str()
      ->check(CLI::IsMember({"off", "sampled", "full"}));
  command
      ->add_option("--kv-carrier", flags->carrier,
                   "How KV moves: auto reads the other worker's memory, tcp sends it through a connection")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "tcp"}));
  command->add_flag("--json", flags->json, "As JSON");
  command->callback([flags, &exit_code] { exit_code = run_bench_handover(*flags); });
}

}  // namespace shoal::cli
