// Prompts and tokens run by coordinates that are threads of this process: what a bench measures of them.
//
// Thread-safety: none; each coordinate works on a thread of its own while run() waits.
// Ownership: owns models, ledgers and compute threads; pools live for one run.

#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "comm/carrier.h"
#include "comm/ledger.h"
#include "core/expected.h"
#include "core/thread_pool.h"
#include "engine/traffic_steps.h"
#include "model/forward.h"

namespace shoal::cli {

// Of one coordinate, over all steps of a run.
struct ContextTimes {
  double seconds = 0;
  double attention = 0;  // without what it waited for others
  double exposed = 0;    // waited for others
  double hidden = 0;     // what moved meanwhile
  std::uint64_t bytes = 0;
  double kv_share = 0;  // of all pages
};

class ContextRuns {
 public:
  struct Options {
    std::filesystem::path model;
    std::int32_t coordinates = 1;  // at most, in any run
    std::int32_t threads = 1;      // of each
    KvDType kv_dtype = KvDType::kBf16;
    bool strict = false;
  };
  // Loads the model once for each coordinate.
  static Expected<std::unique_ptr<ContextRuns>> load(const Options& options);

  enum class What : std::uint8_t { kPrefill, kDecode };
  // groups and vocabulary are filled in. By coordinate. Decoded tokens come at the prompt's depth, in pages
  // that hold a constant.
  Expected<std::vector<ContextTimes>> run(engine::TrafficSteps::Options steps, What what);

  const model::ModelDescription& description() const { return coordinates_.front()->model->description(); }

 private:
  struct Coordinate {
    std::unique_ptr<ThreadPool> pool;
    kernels::Context context;
    std::unique_ptr<model::Model> model;
    comm::Ledger ledger;
  };
  explicit ContextRuns(Options options) : options_(std::move(options)) {}
  Status run_one(std::int32_t index, const engine::TrafficSteps::Options& options, What what,
                 comm::Carrier& carrier, ContextTimes& times);

  Options options_;
  std::vector<std::unique_ptr<Coordinate>> coordinates_;
};

}  // namespace shoal::cli
