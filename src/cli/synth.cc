#include "cli/synth.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/error_output.h"
#include "core/clock.h"
#include "core/thread_pool.h"
#include "formats/synth.h"
#include "formats/synth_weights.h"
#include "tensor/dtype.h"

namespace shoal::cli {
namespace {

struct SynthFlags {
  std::string shape;
  std::string type;  // empty: q8_0 in a file, bf16 in a folder
  std::uint64_t seed = 1;
  int threads = 0;
  std::int64_t layers = 0;  // 0: the shape's
  std::string out;
};

int complain(const Status& status, int exit_code) {
  print_error("shoal synth: {}\n", status.message());
  return exit_code;
}

// One line that rewrites itself, on a terminal only.
std::function<void(std::uint64_t, std::uint64_t)> progress_line() {
  if (::isatty(STDERR_FILENO) == 0) return {};
  return [last = -1](std::uint64_t done, std::uint64_t total) mutable {
    const int percent = static_cast<int>(done * 100 / total);
    if (percent == last) return;
    last = percent;
    print_error("\r{:3d} % of {:.1f} GB{}", percent, static_cast<double>(total) / 1e9,
                done == total ? "\n" : "");
  };
}

int run_synth(const SynthFlags& flags) {
  auto shape = formats::find_synth_shape(flags.shape);
  if (!shape) return complain(shape.error(), 2);
  if (flags.layers > 0) shape->layers = flags.layers;
  const bool file = std::filesystem::path(flags.out).extension() == ".gguf";
  const std::string type_name = !flags.type.empty() ? flags.type : file ? "q8_0" : "bf16";
  const auto type = dtype_from_name(type_name);
  if (!type || !formats::can_synthesise(*type)) {
    return complain(
        {ErrorCode::kInvalidArgument, fmt::format("--type {} is none of those that --help names", type_name)},
        2);
  }
  ThreadPool pool({.threads = flags.threads > 0 ? flags.threads : usable_cores(), .pin = false});
  const TimePoint begin = now();
  const formats::SynthOptions options{.type = *type, .seed = flags.seed, .progress = progress_line()};
  const Status written = file ? formats::write_synth(*shape, options, flags.out, pool)
                              : formats::write_synth_folder(*shape, options, flags.out, pool);
  if (!written.ok()) return complain(written, written.code() == ErrorCode::kInvalidArgument ? 2 : 1);
  fmt::print("{}: {} in {}, seed {}, written in {:.1f} s\n", flags.out, shape->name, dtype_name(*type),
             flags.seed, seconds_between(begin, now()));
  return 0;
}

std::string shape_names() {
  std::vector<std::string_view> names;
  names.reserve(formats::synth_shapes().size());
  for (const formats::SynthShape& shape : formats::synth_shapes()) names.push_back(shape.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

void add_synth(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<SynthFlags>();
  CLI::App* command =
      app.add_subcommand("synth", "Write a model with random weights and a real model's shape");
  command->add_option("shape", flags->shape, "One of " + shape_names())->required()->type_name("SHAPE");
  command
      ->add_option(
          "out", flags->out,
          "The GGUF file to write, where the name ends in .gguf; one of that name is replaced. Else a "
          "Hugging Face folder, which must not be there yet or be empty")
      ->required()
      ->type_name("OUT");
  command->add_option(
      "--type", flags->type,
      "Type of the matrices: f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k. Where "
      "rows are not a multiple of 256, q4_k becomes q5_0, q5_k q5_1 and q6_k q8_0. A folder takes f32, f16 "
      "and bf16. Default: q8_0 in a file, bf16 in a folder");
  command
      ->add_option("--layers", flags->layers,
                   "For benches: so many layers of the shape, where one tells as much as all")
      ->check(CLI::Range(1, 1000));
  command->add_option("--seed", flags->seed, "The same seed gives the same file")->capture_default_str();
  command->add_option("--threads", flags->threads, "Default: the cores this process may use")
      ->check(CLI::Range(1, 1024));
  command->callback([flags, &exit_code] { exit_code = run_synth(*flags); });
}

}  // namespace shoal::cli
