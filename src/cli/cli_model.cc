#include "cli/cli_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <utility>

#include "cli/error_output.h"
#include "cli/flag_checks.h"
#include "engine/engine.h"
#include "kernels/isa.h"

namespace shoal::cli {

void add_model_flags(CLI::App& command, ModelFlags& flags) {
  command
      .add_option("MODEL", flags.model,
                  "A GGUF model file (the first of a split one), or a Hugging Face folder")
      ->required();
  command.add_option("--kv-dtype", flags.kv_dtype, "Type of the KV cache: bf16 or f32")
      ->check(CLI::IsMember({"bf16", "f32"}))
      ->capture_default_str();
  command
      .add_option(
          "--activations", flags.activations,
          "auto rounds activations to the form the fast kernels take; f32 keeps them, to compare with "
          "other implementations")
      ->check(CLI::IsMember({"auto", "f32"}))
      ->capture_default_str();
  command
      .add_option("--weights", flags.weights,
                  "Packs matrices that are f32, f16 or bf16 in the files as bf16, q8_0 or q4_0 (default: as "
                  "they are)")
      ->check(CLI::IsMember({"bf16", "q8_0", "q4_0"}));
  command
      .add_option("--packed-cache", flags.packed_cache,
                  "Folder that keeps weights as packed for the kernels: later starts, and ranks of this host "
                  "with the same part of the model, map them from there instead of packing")
      ->check(not_empty("names no folder", "DIR"));
  command.add_option("--threads", flags.threads, "Compute threads (default: the cores this process may use)")
      ->check(CLI::Range(1, 1024));
  command.add_flag("--deterministic", flags.deterministic,
                   "Strict mode: the same bits however tokens are batched and chunked");
}

void ModelFlags::apply_to(engine::EngineOptions& options) const {
  options.model = model;
  options.threads = threads;
  options.kv_dtype = kv();
  options.activations = activation_type();
  options.deterministic = deterministic;
  options.weights = weight_type();
  options.packed_cache = packed_cache;
}

OpenModel::OpenModel(const ModelFlags& flags, kernels::Isa isa)
    : pool_({.threads = flags.threads > 0 ? flags.threads : usable_cores(),
             .spin = std::chrono::microseconds(flags.threads > usable_cores() ? 0 : 200),
             .pin = flags.threads <= usable_cores()}),
      kv_dtype_(flags.kv()) {
  context_.pool = &pool_;
  context_.isa = isa;
  context_.activations = flags.activation_type();
  context_.strict = flags.deterministic;
}

Expected<std::unique_ptr<OpenModel>> OpenModel::open(const ModelFlags& flags) {
  flush_denormals_here();
  SHOAL_ASSIGN(isa, kernels::chosen_isa());
  std::unique_ptr<OpenModel> opened(new OpenModel(flags, isa));
  ProgressLine progress("loading");
  model::LoadOptions options;
  options.context = opened->context_;
  options.weights = flags.weight_type();
  options.packed_cache = flags.packed_cache;
  options.progress = [&](std::uint64_t done, std::uint64_t total) { progress.show(done, total); };
  SHOAL_ASSIGN(model, model::Model::load(flags.model, options));
  opened->model_ = std::move(model);
  return opened;
}

LogLevel log_level_of(const std::string& name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "warn") return LogLevel::kWarn;
  return name == "error" ? LogLevel::kError : LogLevel::kInfo;
}

int complain(const char* command, const Status& status) {
  return complain(command, status, status.field().starts_with("--") ? 2 : 1);
}

int complain(const char* command, const Status& status, int exit_code) {
  print_error("shoal {}: {}\n", command, status.message());
  return exit_code;
}

ProgressLine::ProgressLine(std::string what)
    : what_(std::move(what)), terminal_(::isatty(STDERR_FILENO) != 0) {}

ProgressLine::~ProgressLine() {
  if (percent_ >= 0) print_error("\n");
}

void ProgressLine::show(std::uint64_t done, std::uint64_t total) {
  if (!terminal_ || total == 0) return;
  const int percent = static_cast<int>(done * 100 / total);
  if (percent == percent_) return;
  percent_ = percent;
  print_error("\r{} {:3d} %", what_, percent);
  std::fflush(stderr);
}

}  // namespace shoal::cli
