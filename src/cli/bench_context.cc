#include "cli/bench_context.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/cli_model.h"
#include "cli/cli_report.h"
#include "cli/context_runs.h"
#include "cli/context_svg.h"
#include "core/log.h"
#include "core/thread_pool.h"
#include "kernels/isa.h"
#include "layout/context_work.h"

namespace shoal::cli {
namespace {

using nlohmann::ordered_json;

struct ContextFlags {
  std::string model;
  std::vector<std::int32_t> degrees = {1, 2};
  std::vector<std::string> partitions = {"zigzag", "contiguous"};
  std::int32_t prompt = 4096;
  std::int32_t chunk = 0;  // 0: undivided
  std::int32_t generate = 16;
  std::vector<std::int32_t> batch = {1};
  std::int32_t threads = 1;
  std::int32_t repeat = 1;
  std::string only;  // "prefill", "decode"; empty: both
  std::string kv_dtype = "bf16";
  std::string svg;
  bool deterministic = false;
  bool json = false;
};

// One degree and way to deal, the coordinates together.
struct Measured {
  std::int32_t degree = 1;
  std::string partition;
  std::int32_t batch = 1;
  double seconds = 0;    // of the slowest
  double attention = 0;  // of the one that attends longest
  double exposed = 0;    // of the one that waits longest
  double hidden = 0;
  double megabytes = 0;  // moved by all
  double kv_share = 0;   // of the one that holds most
  std::vector<ContextTimes> ranks;
};

Measured measured_of(const std::vector<ContextTimes>& times) {
  Measured m;
  for (const ContextTimes& each : times) {
    m.seconds = std::max(m.seconds, each.seconds);
    m.attention = std::max(m.attention, each.attention);
    m.exposed = std::max(m.exposed, each.exposed);
    m.hidden = std::max(m.hidden, each.hidden);
    m.megabytes += static_cast<double>(each.bytes) / 1e6;
    m.kv_share = std::max(m.kv_share, each.kv_share);
  }
  m.ranks = times;
  return m;
}

double rest_of(const Measured& m) { return std::max(0.0, m.seconds - m.attention - m.exposed); }

class ContextBench {
 public:
  explicit ContextBench(const ContextFlags& flags) : flags_(flags) {}

  Status run() {
    ContextRuns::Options options;
    options.model = flags_.model;
    options.coordinates = *std::ranges::max_element(flags_.degrees);
    options.threads = flags_.threads;
    options.kv_dtype = flags_.kv_dtype == "f32" ? KvDType::kF32 : KvDType::kBf16;
    options.strict = flags_.deterministic;
    SHOAL_TRY(measure_scaling(options.coordinates * flags_.threads));
    SHOAL_ASSIGN(runs, ContextRuns::load(options));
    if (flags_.only != "decode") SHOAL_TRY(run_prefill(*runs));
    if (flags_.only != "prefill") SHOAL_TRY(run_decode(*runs));
    return {};
  }

  void print_text() const {
    fmt::print("{} tokens, {} threads each; all cores together do {:.2f} times what one does\n",
               flags_.prompt, flags_.threads, scaling_);
    print_counts();
    if (!prefill_.empty()) print_rows("prefill", prefill_);
    if (ring_.attention_flops > 0)
      fmt::print(
          "attention does {:.0f} GFLOP/s on one rank: over 1 Gbit/s pages travel unnoticed from {:.0f} "
          "tokens on at cp 2, {:.0f} at cp 4\n",
          ring_.attention_flops / 1e9, ring_hidden_from(ring_, 2), ring_hidden_from(ring_, 4));
    if (!decode_.empty()) print_rows("decode, a token", decode_);
  }

  ordered_json to_json() const {
    return {{"bench", "context"},
            {"machine", machine_facts()},
            {"ceilings", {{"before", shoal::cli::to_json(ceilings_)}}},
            {"params",
             {{"model", flags_.model},
              {"prompt", flags_.prompt},
              {"chunk", flags_.chunk},
              {"generate", flags_.generate},
              {"threads", flags_.threads},
              {"repeat", flags_.repeat},
              {"kv_dtype", flags_.kv_dtype},
              {"deterministic", flags_.deterministic}}},
            {"runs", {{"prefill", rows_json(prefill_)}, {"decode", rows_json(decode_)}}},
            {"median", counts_json()},
            {"peer", nullptr}};
  }

  Status write_svg() const {
    if (flags_.svg.empty()) return {};
    std::error_code failed;
    std::filesystem::create_directories(flags_.svg, failed);
    if (!prefill_.empty()) SHOAL_TRY(write("context-prefill.svg", times_svg("Prefill", prefill_)));
    if (!decode_.empty()) SHOAL_TRY(write("context-decode.svg", times_svg("Decode, a token", decode_)));
    return write("context-blocks.svg", blocks_svg());
  }

 private:
  std::int32_t pages() const { return (flags_.prompt + kPageTokens - 1) / kPageTokens; }

  Status measure_scaling(int threads) {
    ThreadPool pool({.threads = std::min(threads, usable_cores())});
    SHOAL_ASSIGN(isa, kernels::chosen_isa());
    SHOAL_ASSIGN(ceilings, kernels::measure_ceilings({.pool = &pool, .isa = isa}));
    scaling_ = ceilings.find("f32 fma")->scaling();
    ceilings_ = std::move(ceilings);
    return {};
  }

  engine::TrafficSteps::Options steps_for(std::int32_t degree, const std::string& partition) const {
    engine::TrafficSteps::Options steps;
    steps.prompt = flags_.prompt;
    steps.chunk = flags_.chunk > 0 ? flags_.chunk : flags_.prompt;
    steps.generate = flags_.generate;
    steps.coordinates = degree;
    steps.partition = *partition_from_name(partition);
    return steps;
  }

  // The run of the median time.
  static Expected<Measured> median_of(ContextRuns& runs, const engine::TrafficSteps::Options& steps,
                                      ContextRuns::What what, std::int32_t repeat) {
    std::vector<Measured> all;
    for (std::int32_t i = 0; i < repeat; ++i) {
      SHOAL_ASSIGN(times, runs.run(steps, what));
      all.push_back(measured_of(times));
    }
    std::ranges::sort(all, {}, &Measured::seconds);
    return all[all.size() / 2];
  }

  Status run_prefill(ContextRuns& runs) {
    for (const std::int32_t degree : flags_.degrees) {
      for (const std::string& partition : flags_.partitions) {
        SHOAL_ASSIGN(
            m, median_of(runs, steps_for(degree, partition), ContextRuns::What::kPrefill, flags_.repeat));
        m.degree = degree;
        m.partition = degree == 1 ? "alone" : partition;
        prefill_.push_back(m);
        if (degree == 1) break;
      }
    }
    measure_ring(runs.description());
    return {};
  }

  // From a prompt that one coordinate has computed at once.
  void measure_ring(const model::ModelDescription& model) {
    const auto alone = std::ranges::find(prefill_, 1, &Measured::degree);
    const auto windowed = [](const model::LayerDescription& layer) { return layer.attention.window > 0; };
    if (alone == prefill_.end() || alone->attention <= 0 || flags_.chunk > 0 ||
        std::ranges::any_of(model.layers, windowed))
      return;
    const model::AttentionBlock& block = model.layers.front().attention;
    // In the last layer one row attends.
    const double layers = static_cast<double>(model.layers.size()) - 1;
    const double pairs = 0.5 * flags_.prompt * flags_.prompt;
    ring_.query_heads = block.query_heads;
    ring_.kv_heads = block.kv_heads;
    ring_.kv_value_bytes = flags_.kv_dtype == "f32" ? 4 : 2;
    ring_.link_bytes = 125e6;
    ring_.attention_flops = layers * pairs * 4 * block.head_dim * block.query_heads / alone->attention;
  }

  Status run_decode(ContextRuns& runs) {
    for (const std::int32_t degree : flags_.degrees) {
      for (const std::int32_t batch : flags_.batch) {
        auto steps = steps_for(degree, "zigzag");
        steps.sequences = batch;
        SHOAL_ASSIGN(m, median_of(runs, steps, ContextRuns::What::kDecode, flags_.repeat));
        // Of one step: the first is not counted.
        const double n = std::max(1, flags_.generate - 1);
        m.seconds /= n;
        m.attention /= n;
        m.exposed /= n;
        m.hidden /= n;
        m.megabytes /= n;
        for (ContextTimes& each : m.ranks) {
          for (double* part : {&each.seconds, &each.attention, &each.exposed, &each.hidden}) *part /= n;
        }
        m.degree = degree;
        m.partition = degree == 1 ? "alone" : "zigzag";
        m.batch = batch;
        decode_.push_back(m);
      }
    }
    return {};
  }

  static std::string name_of(const Measured& m) {
    return m.degree == 1 ? fmt::format("cp 1{}", m.batch > 1 ? fmt::format(" x{}", m.batch) : "")
                         : fmt::format("cp {} {}{}", m.degree, m.partition,
                                       m.batch > 1 ? fmt::format(" x{}", m.batch) : "");
  }

  void print_counts() const {
    for (const std::int32_t degree : {2, 3, 4}) {
      for (const std::string& partition : flags_.partitions) {
        const auto counts = count_context_work(*partition_from_name(partition), degree, pages());
        fmt::print("cp {} {:10} blocks a rank: whole {:.3g}; exact {:.3g}; KV {:.3g}\n", degree, partition,
                   fmt::join(counts.whole, " / "), fmt::join(counts.exact, " / "),
                   fmt::join(counts.kv_share, " / "));
      }
    }
  }

  void print_rows(const char* what, const std::vector<Measured>& rows) const {
    fmt::print("{:24} {:>10} {:>12} {:>10} {:>10} {:>10} {:>12} {:>10}\n", what, "ms", "attention", "exposed",
               "rest", "MB moved", "attention x", "KV share");
    for (const Measured& m : rows) {
      const auto alone = std::ranges::find_if(
          rows, [&](const Measured& other) { return other.degree == 1 && other.batch == m.batch; });
      const double faster = alone == rows.end() ? 0 : alone->attention / m.attention;
      fmt::print("{:24} {:>10.2f} {:>12.2f} {:>10.2f} {:>10.2f} {:>10.2f} {:>12.2f} {:>10.3f}\n", name_of(m),
                 m.seconds * 1e3, m.attention * 1e3, m.exposed * 1e3, rest_of(m) * 1e3, m.megabytes, faster,
                 m.kv_share);
    }
  }

  static ordered_json ranks_json(const Measured& m) {
    ordered_json json = ordered_json::array();
    for (const ContextTimes& each : m.ranks)
      json.push_back({{"seconds", each.seconds},
                      {"attention_seconds", each.attention},
                      {"exposed_seconds", each.exposed},
                      {"hidden_seconds", each.hidden}});
    return json;
  }

  static ordered_json rows_json(const std::vector<Measured>& rows) {
    ordered_json json = ordered_json::array();
    for (const Measured& m : rows)
      json.push_back({{"degree", m.degree},
                      {"partition", m.partition},
                      {"batch", m.batch},
                      {"seconds", m.seconds},
                      {"attention_seconds", m.attention},
                      {"exposed_seconds", m.exposed},
                      {"hidden_seconds", m.hidden},
                      {"rest_seconds", rest_of(m)},
                      {"megabytes", m.megabytes},
                      {"kv_share", m.kv_share},
                      {"ranks", ranks_json(m)}});
    return json;
  }

  ordered_json counts_json() const {
    ordered_json json = ordered_json::array();
    for (const std::int32_t degree : {2, 3, 4}) {
      for (const std::string& partition : flags_.partitions) {
        const auto counts = count_context_work(*partition_from_name(partition), degree, pages());
        json.push_back({{"degree", degree},
                        {"partition", partition},
                        {"blocks_whole", counts.whole},
                        {"blocks_exact", counts.exact},
                        {"kv_share", counts.kv_share}});
      }
    }
    ordered_json ring;
    if (ring_.attention_flops > 0)
      ring = {{"attention_flops", ring_.attention_flops},
              {"hidden_from_tokens_at_1gbit",
               {{"2", ring_hidden_from(ring_, 2)}, {"4", ring_hidden_from(ring_, 4)}}}};
    return {{"scaling", scaling_}, {"counted", json}, {"ring", ring}};
  }

  std::string times_svg(const char* what, const std::vector<Measured>& rows) const {
    std::vector<StackedBar> bars;
    for (const Measured& m : rows) bars.push_back({name_of(m), {m.attention, m.exposed, rest_of(m)}});
    return stacked_bars_svg(fmt::format("{}, {} tokens", what, flags_.prompt), "seconds, of the slowest rank",
                            {"attention", "waiting for others", "the rest"}, bars);
  }

  std::string blocks_svg() const {
    std::vector<StackedBar> bars;
    for (const std::string& partition : flags_.partitions) {
      const auto counts = count_context_work(*partition_from_name(partition), 3, pages());
      for (std::size_t c = 0; c < counts.exact.size(); ++c)
        bars.push_back({fmt::format("{} {}", partition, c), {counts.exact[c]}});
    }
    return stacked_bars_svg("Attention of three coordinates", "blocks (a sixth of the prompt each way)",
                            {"blocks"}, bars);
  }

  Status write(const char* name, const std::string& text) const {
    const std::filesystem::path path = std::filesystem::path(flags_.svg) / name;
    std::ofstream file(path);
    file << text;
    file.close();
    if (file.fail()) return {ErrorCode::kIo, fmt::format("{} cannot be written", path.string())};
    return {};
  }

  const ContextFlags& flags_;
  double scaling_ = 1;
  kernels::Ceilings ceilings_;
  RingSpeeds ring_;
  std::vector<Measured> prefill_;
  std::vector<Measured> decode_;
};

int run_bench_context(const ContextFlags& flags) {
  set_log_level(LogLevel::kWarn);
  ContextBench bench(flags);
  if (const Status status = bench.run(); !status.ok()) return complain("bench context", status);
  if (flags.json) {
    fmt::print("{}\n", bench.to_json().dump(2));
  } else {
    bench.print_text();
  }
  if (const Status status = bench.write_svg(); !status.ok()) return complain("bench context", status);
  return 0;
}

}  // namespace

void add_bench_context(CLI::App& bench, int& exit_code) {
  auto flags = std::make_shared<ContextFlags>();
  CLI::App* command = bench.add_subcommand(
      "context", "What context parallelism saves and costs: a long prompt, and tokens at its depth");
  command->add_option("model", flags->model, "A GGUF file or a Hugging Face folder")
      ->required()
      ->type_name("MODEL");
  command
      ->add_option("--cp", flags->degrees,
                   "Degrees to compare, as 1,2; their ranks are threads of this process")
      ->delimiter(',')
      ->check(CLI::Range(1, 16))
      ->type_name("N,N,...");
  command->add_option("--cp-partition", flags->partitions, "Ways to deal the prompt, as zigzag,contiguous")
      ->delimiter(',')
      ->check(CLI::IsMember({"zigzag", "striped", "contiguous", "masked"}))
      ->type_name("NAME,...");
  command->add_option("--prompt", flags->prompt, "Tokens of the prompt, and the depth of decoded ones")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--chunk", flags->chunk, "Tokens of the prompt in one step; default: all")
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--generate", flags->generate, "Tokens to decode, the first of which is not counted")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 16));
  command->add_option("--batch", flags->batch, "Sequences that decode together, as 1,8")
      ->delimiter(',')
      ->check(CLI::Range(1, 256))
      ->type_name("N,...");
  command->add_option("--threads", flags->threads, "Of each rank")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  command->add_option("--repeat", flags->repeat, "Runs of each, of which the median counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 100));
  command->add_option("--only", flags->only, "One of the two: prefill or decode")
      ->check(CLI::IsMember({"prefill", "decode"}));
  command->add_option("--kv-dtype", flags->kv_dtype)
      ->capture_default_str()
      ->check(CLI::IsMember({"bf16", "f32"}));
  command->add_option("--svg", flags->svg, "A folder for plots")->type_name("FOLDER");
  command->add_flag("--deterministic", flags->deterministic, "Strict mode");
  command->add_flag("--json", flags->json, "As JSON");
  command->callback([flags, &exit_code] { exit_code = run_bench_context(*flags); });
}

}  // namespace shoal::cli
