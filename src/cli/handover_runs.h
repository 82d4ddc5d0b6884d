// Requests through a prefill and a decode worker of one process, over the connections that two processes
// would have, and through one worker alone: what a bench measures of them.
//
// Thread-safety: none; engines and connections have threads of their own.
// Ownership: owns both engines and what connects them.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/cli_model.h"
#include "comm/ledger.h"
#include "core/expected.h"
#include "engine/engine.h"
#include "handover/bootstrap.h"
#include "handover/rank_ports.h"
#include "handover/receiver.h"
#include "handover/sender.h"
#include "layout/layout.h"

namespace shoal::cli {

// Of one request; seconds.
struct RequestTimes {
  double first_token = 0;    // since it was sent
  double second_gap = 0;     // from the first token to the second
  std::vector<double> gaps;  // from token to token, those behind the second
  // Of what was handed over; zeros where nothing was.
  std::uint64_t bytes = 0;
  double moving = 0;   // time spent writing KV, or reading it
  double exposed = 0;  // from the end of the computation until decode had everything
  double cpu = 0;      // of all threads, while it ran
};

class HandoverRuns {
 public:
  struct Options {
    ModelFlags model;  // threads: of each rank
    Degrees prefill;
    Degrees decode;
    std::int32_t prompt = 4000;
    std::int32_t generate = 32;
    std::int32_t chunk = 0;
    handover::Checksums checksums = handover::Checksums::kSampled;
    bool by_memory = true;  // where the workers are on one host, as they are here
  };
  // Loads the model once for each worker.
  static Expected<std::unique_ptr<HandoverRuns>> start(const Options& options);
  ~HandoverRuns();

  // Whether a worker has the prompt in its prefix cache, but for the end of it that is always computed.
  struct Warm {
    bool prefill = false;
    bool decode = false;
  };
  Expected<RequestTimes> together(Warm warm);
  // By the prefill worker alone, its cache cold.
  Expected<RequestTimes> alone();

  // Of the prompt, on all ranks that decode asks for it with a cold cache.
  std::uint64_t prompt_bytes() const;

 private:
  explicit HandoverRuns(Options options) : options_(std::move(options)) {}
  Status open();
  Expected<std::unique_ptr<engine::Engine>> start_engine(const Degrees& degrees, handover::RankPorts& ports,
                                                         const std::string& role) const;
  engine::GenerateRequest request() const;
  double cpu_seconds() const;
  comm::Charge settled_charges(std::uint64_t before, bool moves) const;

  Options options_;
  std::unique_ptr<engine::Engine> prefill_;
  std::unique_ptr<engine::Engine> decode_;
  std::unique_ptr<handover::Sender> sender_;
  std::unique_ptr<handover::BootstrapPort> bootstrap_;
  std::unique_ptr<handover::Receiver> receiver_;
  handover::RoomId next_room_ = 1;
};

}  // namespace shoal::cli
