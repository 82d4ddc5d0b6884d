// What a gateway is told at its start.
//
// Thread-safety: values.

#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gateway/client_keys.h"
#include "gateway/worker_prober.h"
#include "policy/resilience.h"
#include "policy/route.h"
#include "wire/tls_context.h"

namespace shoal::gateway {

struct GatewayOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;
  std::shared_ptr<wire::TlsContext> tls;  // of its own ports; null: plain HTTP
  std::size_t max_connections = 16'384;
  // Where the admin API listens apart; -1: on the users' port, 0: a free one.
  std::string admin_host = "127.0.0.1";
  std::int32_t admin_port = -1;
  std::string admin_key;         // empty: only this machine's own processes may use the admin API
  std::string registration_key;  // what workers that register must show; empty: nobody may

  // Of engines that do not say where their bootstrap port is; workers of this system do.
  struct PrefillWorker {
    std::string url;
    std::uint16_t bootstrap_port = 0;  // 0: the usual 8998
  };
  std::vector<std::string> workers;
  std::vector<PrefillWorker> prefill_workers;
  std::vector<std::string> decode_workers;
  std::filesystem::path worker_file;  // one URL a line, looked at every second; empty: none
  std::shared_ptr<wire::TlsContext> worker_tls;
  std::string worker_api_key;
  std::map<std::string, std::string> aliases;  // what clients may call a model, too

  ClientKeys keys;
  policy::RoutePolicy policy = policy::RoutePolicy::kShortestQueue;
  policy::ClassLimits classes;
  ProbeOptions probes;
  policy::Breaker::Options breaker;

  std::int32_t max_running = 4096;  // requests at workers; further ones wait
  std::int32_t max_queue = 1024;    // that wait; further ones get 429
  std::chrono::milliseconds queue_patience{30'000};
  std::int32_t attempts = 5;                          // of one request
  std::chrono::milliseconds worker_patience{30'000};  // for a worker to come, where none can take a request
  std::chrono::milliseconds stall{30'000};            // in the middle of a stream: its worker counts as lost
  std::chrono::milliseconds deadline{
      3'600'000};  // of one attempt: a request may take `attempts` times as long
  // Of a stream's output not yet taken by its client: past the first no more is read from the worker, until
  // it has fallen to the second.
  std::size_t backlog_high = 128 * 1024;
  std::size_t backlog_low = 32 * 1024;
};

}  // namespace shoal::gateway
