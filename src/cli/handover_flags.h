// The flags of `shoal serve` for workers that prefill or decode for others, and what they start.
//
// Thread-safety: none; the command's thread.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/expected.h"
#include "handover/bootstrap.h"
#include "handover/rank_ports.h"
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
  std::string carrier = "auto";
  std::vector<std::string> prefill_hosts;
  bool decode_flags = false;   // one that only a decode worker has a use for was given
  bool prefill_flags = false;  // one that only a prefill worker has a use for was given
  bool handover_flags = false;

  // Refuses what would be ignored, and what cannot be served yet. Before anything is loaded.
  Status check(const Degrees& degrees) const;
  // What the role needs in every rank, before the engine starts; null where there is no role. host: where the
  // server listens.
  Expected<std::shared_ptr<handover::RankPorts>> equip(engine::EngineOptions& options,
                                                       const std::string& host) const;
  // The ports of the role.
  Status start(serving::Worker& worker, std::shared_ptr<handover::RankPorts> ports,
               const std::string& host) const;
};

// Returns --role. token_file is the caller's to fill in: ranks and gateways share it.
CLI::Option* add_handover_flags(CLI::App& serve, HandoverFlags& flags);

}  // namespace shoal::cli
