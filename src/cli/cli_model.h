// What every subcommand that computes shares: its flags for numbers and threads, and a loaded model on them.
//
// Thread-safety: none; an OpenModel belongs to the thread that made it, which takes part in its pool.
// Ownership: an OpenModel owns its threads and its model.

#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/expected.h"
#include "core/log.h"
#include "core/thread_pool.h"
#include "kernels/context.h"
#include "model/forward.h"
#include "tensor/dtype.h"
#include "tensor/kv_layout.h"

namespace CLI {
class App;
}

namespace shoal::engine {
struct EngineOptions;
}

namespace shoal::cli {

struct ModelFlags {
  std::string model;
  std::string kv_dtype = "bf16";
  std::string activations = "auto";
  std::string weights;       // empty: as in the files
  std::string packed_cache;  // folder; empty: none
  int threads = 0;           // 0: as many as this process may use
  bool deterministic = false;

  std::optional<DType> weight_type() const { return dtype_from_name(weights); }
  KvDType kv() const { return kv_dtype == "f32" ? KvDType::kF32 : KvDType::kBf16; }
  kernels::Activations activation_type() const {
    return activations == "f32" ? kernels::Activations::kF32 : kernels::Activations::kAuto;
  }
  void apply_to(engine::EngineOptions& options) const;
};

// MODEL, --kv-dtype, --activations, --weights, --packed-cache, --threads, --deterministic.
void add_model_flags(CLI::App& command, ModelFlags& flags);

class OpenModel {
 public:
  static Expected<std::unique_ptr<OpenModel>> open(const ModelFlags& flags);

  model::Model& model() { return *model_; }
  const kernels::Context& context() const { return context_; }
  KvDType kv_dtype() const { return kv_dtype_; }
  int threads() const { return pool_.size(); }

 private:
  OpenModel(const ModelFlags& flags, kernels::Isa isa);

  ThreadPool pool_;
  kernels::Context context_;
  KvDType kv_dtype_;
  std::unique_ptr<model::Model> model_;
};

// "debug", "info", "warn", "error"; anything else is info.
LogLevel log_level_of(const std::string& name);

// Writes `shoal COMMAND: message` to standard error and gives back the exit code: 2 where the status names a
// flag as what is at fault, else 1.
int complain(const char* command, const Status& status);
int complain(const char* command, const Status& status, int exit_code);

// A line on standard error that rewrites itself; nothing where that is no terminal.
class ProgressLine {
 public:
  explicit ProgressLine(std::string what);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(std::uint64_t done, std::uint64_t total);

 private:
  std::string what_;
  bool terminal_;
  int percent_ = -1;
};

}  // namespace shoal::cli
