#include "cli/bench_engine.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/cli_model.h"
#include "cli/cli_report.h"
#include "cli/cli_sequences.h"
#include "cli/layout_bench.h"
#include "core/clock.h"
#include "kernels/ceilings.h"
#include "kernels/sampling_math.h"

namespace shoal::cli {

namespace {

using nlohmann::ordered_json;

// Rows of one prefill pass: what amortises reading the weights without holding up decode for long.
constexpr std::int32_t kChunk = 512;

struct BenchFlags {
  ModelFlags model;
  LayoutFlags layout;
  bool served = false;
  std::int32_t chunk = 0;
  std::string ranks_only;  // a flag given that only ranks, or --served, take
  std::int32_t prompt = 512;
  std::int32_t generate = 64;
  std::int32_t batch = 1;
  std::int32_t depth = 0;
  std::int32_t repeat = 5;
  bool json = false;
};

struct Run {
  double prefill = 0;  // tokens a second, all sequences together; 0 where there is no prompt
  double decode = 0;
};

struct Report {
  ordered_json machine;
  kernels::Ceilings before;
  kernels::Ceilings after;
  double weight_gb = 0;
  double kv_gb_per_step = 0;  // read by a decode step of the batch, on average
  std::vector<Run> runs;
  std::vector<std::string> kernels;
};

class EngineBench {
 public:
  EngineBench(OpenModel& open, const BenchFlags& flags)
      : open_(open),
        flags_(flags),
        sequences_(open.model(), open.kv_dtype()),
        vocabulary_(open.model().description().vocabulary),
        logits_(static_cast<std::size_t>(vocabulary_ * flags.batch)) {}

  Status prepare() {
    SHOAL_TRY(sequences_.reset(flags_.batch, tokens_each()));
    for (std::int32_t s = 0; s < flags_.batch; ++s) append(s, flags_.depth, LogitsOf::kNone);
    return {};
  }

  double kv_gb_per_step() const {
    const std::int64_t middle = std::int64_t{flags_.depth} + flags_.prompt + flags_.generate / 2;
    return static_cast<double>(flags_.batch * sequences_.kv_bytes_read(middle)) / 1e9;
  }

  Run measure() {
    for (std::int32_t s = 0; s < flags_.batch; ++s) sequences_.truncate(s, flags_.depth);
    next_.assign(static_cast<std::size_t>(flags_.batch), 0);
    Run run;
    const TimePoint begin = now();
    for (std::int32_t s = 0; s < flags_.batch; ++s) {
      append(s, flags_.prompt, LogitsOf::kLast);
      if (flags_.prompt > 0) next_[static_cast<std::size_t>(s)] = best(0);
    }
    const TimePoint filled = now();
    for (std::int32_t i = 0; i < flags_.generate; ++i) step();
    const TimePoint end = now();
    run.prefill = flags_.batch * flags_.prompt / seconds_between(begin, filled);
    run.decode = flags_.batch * flags_.generate / seconds_between(filled, end);
    return run;
  }

 private:
  std::int64_t tokens_each() const { return std::int64_t{flags_.depth} + flags_.prompt + flags_.generate; }

  TokenId best(std::int64_t row) const {
    return kernels::arg_max(open_.context(),
                            std::span(logits_).subspan(static_cast<std::size_t>(row * vocabulary_),
                                                       static_cast<std::size_t>(vocabulary_)));
  }

  // Appends `count` arbitrary tokens. logits: of the last of them.
  void append(std::int32_t sequence, std::int32_t count, LogitsOf logits) {
    for (std::int32_t done = 0; done < count; done += kChunk) {
      chunk_.clear();
      for (std::int32_t i = done; i < std::min(count, done + kChunk); ++i) {
        const auto token = static_cast<TokenId>(sequence * 31 + i);
        const std::uint64_t bits = kernels::noise_bits(1, 0, static_cast<std::uint64_t>(i), token);
        chunk_.push_back(static_cast<TokenId>(bits % static_cast<std::uint64_t>(vocabulary_)));
      }
      const bool last = done + kChunk >= count;
      const SequenceWork work{sequence, chunk_, last ? logits : LogitsOf::kNone};
      sequences_.run(std::span(&work, 1), {logits_.data(), 1, vocabulary_});
    }
  }

  // One token for every sequence.
  void step() {
    work_.clear();
    for (std::int32_t s = 0; s < flags_.batch; ++s) {
      work_.push_back({s, std::span(&next_[static_cast<std::size_t>(s)], 1), LogitsOf::kLast});
    }
    sequences_.run(work_, {logits_.data(), flags_.batch, vocabulary_});
    for (std::int32_t s = 0; s < flags_.batch; ++s) next_[static_cast<std::size_t>(s)] = best(s);
  }

  OpenModel& open_;
  const BenchFlags& flags_;
  Sequences sequences_;
  std::int64_t vocabulary_;
  std::vector<float> logits_;
  std::vector<TokenId> next_;
  std::vector<TokenId> chunk_;
  std::vector<SequenceWork> work_;
};

Spread spread(const std::vector<Run>& runs, double Run::*figure) {
  std::vector<double> values;
  for (const Run& run : runs) values.push_back(run.*figure);
  return spread_of(std::move(values));
}

void print_json(const BenchFlags& flags, const OpenModel& open, const Report& report) {
  ordered_json runs = ordered_json::array();
  for (const Run& run : report.runs) {
    runs.push_back({{"prefill_tokens_per_s", run.prefill}, {"decode_tokens_per_s", run.decode}});
  }
  const ordered_json json{{"bench", "engine"},
                          {"machine", report.machine},
                          {"ceilings", to_json(report.before, report.after)},
                          {"params",
                           {{"model", flags.model.model},
                            {"weight_gb", report.weight_gb},
                            {"kv_gb_per_step", report.kv_gb_per_step},
                            {"prompt", flags.prompt},
                            {"generate", flags.generate},
                            {"batch", flags.batch},
                            {"depth", flags.depth},
                            {"threads", open.threads()},
                            {"repeat", flags.repeat},
                            {"kv_dtype", flags.model.kv_dtype},
                            {"activations", flags.model.activations},
                            {"deterministic", flags.model.deterministic},
                            {"kernels", report.kernels}}},
                          {"runs", runs},
                          {"median",
                           {{"prefill_tokens_per_s", to_json(spread(report.runs, &Run::prefill))},
                            {"decode_tokens_per_s", to_json(spread(report.runs, &Run::decode))}}},
                          {"peer", nullptr}};
  fmt::print("{}\n", json.dump(2));
}

void print_text(const BenchFlags& flags, const OpenModel& open, const Report& report) {
  const Spread prefill = spread(report.runs, &Run::prefill);
  const Spread decode = spread(report.runs, &Run::decode);
  for (const std::string& line : report.kernels) fmt::print("{}\n", line);
  fmt::print("{}", to_text(report.before));
  const double drift = drift_of(report.before, report.after);
  fmt::print("Drift of the ceilings during the run: {:.1f} %{}\n", 100 * drift,
             drift > 0.1 ? ", too much to trust the figures" : "");
  fmt::print("weights {:.2f} GB, {:.3f} GB of KV read a step, {} threads, batch {}, depth {}\n",
             report.weight_gb, report.kv_gb_per_step, open.threads(), flags.batch, flags.depth);
  fmt::print("prefill {:8.2f} tokens/s [{:.2f} .. {:.2f}] of {}-token prompts\n", prefill.median,
             prefill.least, prefill.most, flags.prompt);
  // Each step of the batch reads all weights once, and each sequence's keys and values.
  const double gb = decode.median / flags.batch * (report.weight_gb + report.kv_gb_per_step);
  fmt::print(
      "decode  {:8.2f} tokens/s [{:.2f} .. {:.2f}], {:.1f} GB/s of weights and KV ({:.0f} % of the "
      "ceiling)\n",
      decode.median, decode.least, decode.most, gb, 100 * gb / report.before.read.together);
}

int run_bench(const BenchFlags& flags) {
  if (flags.served || !flags.layout.one_rank()) {
    if (flags.depth > 0 || flags.prompt < 1)
      return complain("bench engine",
                      {ErrorCode::kInvalidArgument,
                       "--tp, --pp and --served take prompts of at least 1 token and no --depth"},
                      2);
    return run_layout_bench({flags.model, flags.layout, flags.prompt, flags.generate, flags.batch,
                             flags.chunk, flags.repeat, flags.json});
  }
  if (!flags.ranks_only.empty())
    return complain(
        "bench engine",
        {ErrorCode::kInvalidArgument,
         fmt::format("{}: without --tp, --pp, --cp or --served there is nothing that it says how to cut",
                     flags.ranks_only)},
        2);
  auto open = OpenModel::open(flags.model);
  if (!open) return complain("bench engine", open.error());
  EngineBench bench(**open, flags);
  if (const Status ready = bench.prepare(); !ready.ok()) return complain("bench engine", ready);
  Report report;
  report.machine = machine_facts();
  report.weight_gb = static_cast<double>((*open)->model().weight_bytes()) / 1e9;
  report.kv_gb_per_step = bench.kv_gb_per_step();
  report.kernels = (*open)->model().kernel_report();
  bench.measure();  // warms caches, scratch and pages
  auto before = kernels::measure_ceilings((*open)->context());
  if (!before) return complain("bench engine", before.error());
  for (std::int32_t i = 0; i < flags.repeat; ++i) report.runs.push_back(bench.measure());
  auto after = kernels::measure_ceilings((*open)->context());
  if (!after) return complain("bench engine", after.error());
  report.before = std::move(*before);
  report.after = std::move(*after);
  if (flags.json) {
    print_json(flags, **open, report);
  } else {
    print_text(flags, **open, report);
  }
  return 0;
}

}  // namespace

void add_bench_engine(CLI::App& bench, int& exit_code) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* command = bench.add_subcommand(
      "engine",
      "Tokens a second of the forward pass, beside what the machine's memory gives in the same run");
  add_model_flags(*command, flags->model);
  command->add_option("--prompt", flags->prompt, "Tokens of each prompt")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command->add_option("--generate", flags->generate, "Tokens decoded after each prompt")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--batch", flags->batch, "Sequences decoded together")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--depth", flags->depth, "Tokens already in the cache before the prompt")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command->add_option("--repeat", flags->repeat, "Runs; the median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  add_layout_flags(*command, flags->layout);
  command->add_flag("--served", flags->served,
                    "Drive one rank, too, as a server does: requests, plans in flight, sampling");
  command
      ->add_option("--chunk", flags->chunk,
                   "With --tp, --pp or --served: tokens of prefill a step; 0: as many as time allows")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([flags, command, &exit_code] {
    for (const char* name :
         {"--tp-split", "--layers", "--balance", "--wire", "--cp-partition", "--cp-force", "--chunk"}) {
      if (command->count(name) > 0) flags->ranks_only = name;
    }
    exit_code = run_bench(*flags);
  });
}

}  // namespace shoal::cli
