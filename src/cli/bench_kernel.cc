#include "cli/bench_kernel.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/cli_model.h"
#include "cli/cli_report.h"
#include "cli/kernel_cases.h"
#include "cli/roofline_svg.h"
#include "core/available_memory.h"
#include "core/clock.h"
#include "core/thread_pool.h"
#include "formats/synth_weights.h"
#include "kernels/ceilings.h"

namespace shoal::cli {

namespace {

using nlohmann::ordered_json;

// A sample lasts at least this long: hand-overs and clock reads vanish in it.
constexpr double kSampleSeconds = 10e-3;
constexpr std::int64_t kPrefillRows = 512;

struct KernelFlags {
  int threads = 0;
  int repeat = 5;
  std::vector<std::string> kernels;
  std::vector<std::string> types = {"bf16", "q8_0", "q4_0", "q4_k", "q6_k"};
  std::vector<std::string> shapes = {"2048x8192", "8192x2048"};
  std::vector<std::int64_t> rows = {1, 4, 8, 16, 32, 128, 512};
  std::vector<std::int32_t> depths = {0, 4096, 16384};
  std::string svg;
  bool json = false;

  bool wants(const char* kernel) const {
    return kernels.empty() || std::find(kernels.begin(), kernels.end(), kernel) != kernels.end();
  }
};

struct Result {
  std::string kernel;
  std::string shape;
  double flops = 0;
  double bytes = 0;
  const kernels::Ceiling* compute = nullptr;
  Spread seconds;

  double tera_per_s() const { return flops / seconds.median / 1e12; }
  double gb_per_s() const { return bytes / seconds.median / 1e9; }
  // The least time that the ceilings allow, whichever binds.
  bool memory_binds(double read_gb_per_s) const {
    return bytes / (read_gb_per_s * 1e9) > flops / (compute->together * 1e12);
  }
  double share(double read_gb_per_s) const {
    const double least = std::max(bytes / (read_gb_per_s * 1e9), flops / (compute->together * 1e12));
    return least / seconds.median;
  }
};

Result measure(const KernelCase& one, int repeat) {
  one.call();  // page faults and scratch
  int calls = 1;
  for (;;) {
    const TimePoint begin = now();
    for (int i = 0; i < calls; ++i) one.call();
    if (seconds_between(begin, now()) >= kSampleSeconds) break;
    calls *= 2;
  }
  std::vector<double> samples;
  for (int sample = 0; sample < repeat; ++sample) {
    const TimePoint begin = now();
    for (int i = 0; i < calls; ++i) one.call();
    samples.push_back(seconds_between(begin, now()) / calls);
  }
  return {one.kernel, one.shape, one.flops, one.bytes, one.compute, spread_of(std::move(samples))};
}

struct Products {
  DType type = DType::kF32;
  std::string type_name;
  MatmulShape shape;
};

Status usage(std::string sentence) { return {ErrorCode::kInvalidArgument, std::move(sentence)}; }

// "2048x8192". False where it is anything else, or beyond what a model has.
bool parse_shape(std::string_view text, MatmulShape& shape) {
  constexpr std::int64_t kMost = std::int64_t{1} << 24;
  const char* end = text.data() + text.size();
  const auto inputs = std::from_chars(text.data(), end, shape.inputs);
  if (inputs.ec != std::errc() || inputs.ptr == end || *inputs.ptr != 'x') return false;
  const auto outputs = std::from_chars(inputs.ptr + 1, end, shape.outputs);
  return outputs.ec == std::errc() && outputs.ptr == end && shape.inputs > 0 && shape.outputs > 0 &&
         shape.inputs <= kMost && shape.outputs <= kMost;
}

// Everything that can be wrong with the flags, before anything is measured.
Expected<std::vector<Products>> products_of(const KernelFlags& flags) {
  std::vector<Products> all;
  const auto most_rows = static_cast<double>(*std::max_element(flags.rows.begin(), flags.rows.end()));
  const auto available = static_cast<double>(available_memory());
  for (const std::string& name : flags.types) {
    const auto type = dtype_from_name(name);
    if (!type || !formats::can_synthesise(*type)) {
      return usage(fmt::format("--types: '{}' is no type of weights", name));
    }
    for (const std::string& text : flags.shapes) {
      MatmulShape shape;
      if (!parse_shape(text, shape) || shape.inputs % block_elements(*type) != 0) {
        return usage(fmt::format("--shapes: '{}' is no shape for {}: INPUTSxOUTPUTS, inputs a multiple of {}",
                                 text, name, block_elements(*type)));
      }
      const double weights =
          static_cast<double>(row_bytes(*type, shape.inputs)) * static_cast<double>(shape.outputs);
      // The source, two packed copies at the least, and rows of inputs and outputs.
      const double needed =
          3 * weights + most_rows * sizeof(float) * static_cast<double>(shape.inputs + shape.outputs);
      if (needed > available) {
        return usage(fmt::format("--shapes: '{}' in {} needs {:.1f} GB, and {:.1f} are available", text, name,
                                 needed / 1e9, available / 1e9));
      }
      all.push_back({*type, name, shape});
    }
  }
  return all;
}

class KernelBench {
 public:
  KernelBench(const KernelFlags& flags, std::vector<Products> products, kernels::Isa isa)
      : flags_(flags),
        products_(std::move(products)),
        pool_({.threads = flags.threads > 0 ? flags.threads : usable_cores()}),
        context_{.pool = &pool_, .isa = isa} {
    flush_denormals_here();
  }

  Status run() {
    SHOAL_ASSIGN(before, kernels::measure_ceilings(context_));
    before_ = std::move(before);
    if (!flags_.json) fmt::print("{}\n", to_text(before_));
    if (flags_.wants("matmul")) SHOAL_TRY(run_matmul());
    if (flags_.wants("attention")) SHOAL_TRY(run_attention());
    if (flags_.wants("elementwise")) {
      SHOAL_ASSIGN(cases, kernels_elementwise());
      for (const KernelCase& one : cases) take(one);
    }
    SHOAL_ASSIGN(after, kernels::measure_ceilings(context_));
    after_ = std::move(after);
    return {};
  }

  void finish() const {
    if (flags_.json) {
      fmt::print("{}\n", json().dump(2));
      return;
    }
    const double drift = drift_of(before_, after_);
    fmt::print("\nDrift of the ceilings during the run: {:.1f} %{}\n", 100 * drift,
               drift > 0.1 ? ", too much to trust the figures" : "");
  }

  Status write_svg() const {
    std::vector<RooflinePoint> points;
    for (const Result& result : results_) {
      points.push_back(
          {result.kernel,
           fmt::format("{}, {}: {:.3f} TFLOP/s, {:.1f} GB/s, {:.0f} % of the roof", result.kernel,
                       result.shape, result.tera_per_s(), result.gb_per_s(), 100 * share(result)),
           result.flops / result.bytes, result.tera_per_s()});
    }
    std::ofstream file(flags_.svg);
    file << roofline_svg(before_, points,
                         fmt::format("Kernels under the roof of {} threads ({})", pool_.size(),
                                     kernels::isa_name(context_.isa)));
    file.close();
    if (!file) return Status(ErrorCode::kIo, fmt::format("{} cannot be written", flags_.svg));
    return {};
  }

 private:
  double share(const Result& result) const { return result.share(before_.read.together); }

  void take(const KernelCase& one) {
    const Result result = measure(one, flags_.repeat);
    if (!flags_.json) {
      fmt::print("{:18} {:44} {:10.1f} us {:8.3f} T/s {:7.1f} GB/s {:4.0f} % of {}\n", result.kernel,
                 result.shape, result.seconds.median * 1e6, result.tera_per_s(), result.gb_per_s(),
                 100 * share(result),
                 result.memory_binds(before_.read.together) ? "read" : result.compute->name);
      std::fflush(stdout);
    }
    results_.push_back(result);
  }

  Status run_matmul() {
    for (const Products& products : products_) {
      SHOAL_ASSIGN(cases, matmul_cases(context_, before_, products.type, products.shape, flags_.rows));
      for (const KernelCase& one : cases) take(one);
    }
    return {};
  }

  Status run_attention() {
    for (const std::int32_t depth : flags_.depths) {
      SHOAL_ASSIGN(prefill,
                   attention_case(context_, before_,
                                  {.rows = static_cast<std::int32_t>(kPrefillRows), .depth = depth}));
      take(prefill);
      if (depth == 0) continue;
      for (const std::int32_t sequences : {1, 8}) {
        SHOAL_ASSIGN(decode,
                     attention_case(context_, before_, {.sequences = sequences, .rows = 1, .depth = depth}));
        take(decode);
      }
    }
    return {};
  }

  Expected<std::vector<KernelCase>> kernels_elementwise() const {
    return elementwise_cases(context_, before_, kPrefillRows, 2048, 8192);
  }

  ordered_json json() const {
    ordered_json runs = ordered_json::array();
    for (const Result& result : results_) {
      runs.push_back(
          {{"kernel", result.kernel},
           {"shape", result.shape},
           {"us",
            {{"median", result.seconds.median * 1e6},
             {"min", result.seconds.least * 1e6},
             {"max", result.seconds.most * 1e6}}},
           {"tera_per_s", result.tera_per_s()},
           {"gb_per_s", result.gb_per_s()},
           {"bound_by", result.memory_binds(before_.read.together) ? "read" : result.compute->name},
           {"share_of_ceiling", share(result)}});
    }
    return {
        {"bench", "kernel"},
        {"machine", machine_facts()},
        {"ceilings", to_json(before_, after_)},
        {"params",
         {{"threads", pool_.size()}, {"repeat", flags_.repeat}, {"isa", kernels::isa_name(context_.isa)}}},
        {"runs", runs},
        {"median", nullptr},
        {"peer", nullptr}};
  }

  const KernelFlags& flags_;
  std::vector<Products> products_;
  ThreadPool pool_;
  kernels::Context context_;
  kernels::Ceilings before_;
  kernels::Ceilings after_;
  std::vector<Result> results_;
};

constexpr int kUsage = 2;

int run_kernel(const KernelFlags& flags) {
  const auto isa = kernels::chosen_isa();
  if (!isa) return complain("bench kernel", isa.error());
  auto products = products_of(flags);
  if (!products) return complain("bench kernel", products.error(), kUsage);
  // Opened before minutes of measuring, not after.
  if (!flags.svg.empty() && !std::ofstream(flags.svg)) {
    return complain("bench kernel", Status(ErrorCode::kIo, fmt::format("{} cannot be written", flags.svg)));
  }
  KernelBench bench(flags, std::move(*products), *isa);
  if (const Status done = bench.run(); !done.ok()) return complain("bench kernel", done);
  bench.finish();
  if (!flags.svg.empty()) {
    if (const Status written = bench.write_svg(); !written.ok()) return complain("bench kernel", written);
  }
  return 0;
}

}  // namespace

void add_bench_kernel(CLI::App& bench, int& exit_code) {
  auto flags = std::make_shared<KernelFlags>();
  CLI::App* command = bench.add_subcommand("kernel",
                                           "Each kernel alone, in TFLOP/s and GB/s, and its share of what "
                                           "the machine gives (measured in the same run).\n"
                                           "Weights and KV come from memory. Row-wise kernels work on warm "
                                           "data: their GB/s may exceed what memory reads.");
  command->add_option("--threads", flags->threads, "Threads; 0: as many as this process may use")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->add_option("--kernels", flags->kernels, "Only these: matmul, attention, elementwise")
      ->delimiter(',')
      ->check(CLI::IsMember({"matmul", "attention", "elementwise"}));
  command->add_option("--types", flags->types, "Weight types of the products")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--shapes", flags->shapes, "INPUTSxOUTPUTS of the products")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--rows", flags->rows, "Rows of activations of the products")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command->add_option("--depths", flags->depths, "Tokens in the cache before the new ones, for attention")
      ->delimiter(',')
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command->add_option("--repeat", flags->repeat, "Samples; the median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--svg", flags->svg, "Write a roofline plot to this file");
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([flags, &exit_code] { exit_code = run_kernel(*flags); });
}

}  // namespace shoal::cli
