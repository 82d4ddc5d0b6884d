// The bootstrap port of a prefill worker, as SGLang's: who serves here, and where its ranks send KV from.
//
//   GET /health  200 once it serves
//   GET /route   without a rank, or with ranks of -1: the worker's degrees, page size and KV type; with
//                `target_tp_rank`, `target_pp_rank` (or `engine_rank`): {"rank_ip", "rank_port"}
//   PUT /route   403: ranks of a worker are its head's affair, and a route from a stranger would be no good
//
// It is open to everybody and tells nothing secret: who connects to a rank's port must hold the cluster
// token.
//
// Thread-safety: start() and destruction belong to the owner; requests are answered on a thread of its own.
// Ownership: owns its HTTP server.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/expected.h"
#include "layout/layout.h"
#include "wire/http_server.h"

namespace shoal::handover {

inline constexpr std::uint16_t kBootstrapPort = 8998;

class BootstrapPort {
 public:
  struct Options {
    std::string host = "127.0.0.1";
    std::uint16_t port = kBootstrapPort;  // 0: a free one
    Layout layout = Layout::single();
    // Where ranks of this host listen. Empty: where this port does.
    std::string rank_host;
    // Of each rank, HOST:PORT, ":PORT" on this host; empty while it is not known.
    std::function<std::string(std::int32_t rank)> endpoint;
    std::string kv_dtype = "bf16";
  };
  static Expected<std::unique_ptr<BootstrapPort>> start(Options options);

  std::uint16_t port() const { return port_; }

 private:
  BootstrapPort() = default;
  wire::HttpServer server_;
  std::uint16_t port_ = 0;
};

}  // namespace shoal::handover
