// The flags of `shoal serve` for workers that prefill or decode for others, and what they start.
//
// Thread-safety: none; the command's thread.

#pragma once

#include <cstdint>
#include <string>

#include "core/expected.h"
#include "handover/bootstrap.h"
#include "layout/layout.h"
#include "serving/worker.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace shoal::cli {

struct HandoverFlags {
  std::string role = "both";
  std::string token_file;
  std::uint16_t bootstrap_port = handover::kBootstrapPort;
  std::uint16_t handover_port = 0;
  std::string checksum = "sampled";
  bool prefill_flags = false;  // one that only a prefill worker has a use for was given
  bool handover_flags = false;

  // Refuses what would be ignored, and what cannot be served yet. Before anything is loaded.
  Status check(const Degrees& degrees) const;
  // The ports of the role. host: where the server listens.
  Status start(serving::Worker& worker, const std::string& host) const;
};

// Returns --role. token_file is the caller's to fill in: ranks and gateways share it.
CLI::Option* add_handover_flags(CLI::App& serve, HandoverFlags& flags);

}  // namespace shoal::cli
