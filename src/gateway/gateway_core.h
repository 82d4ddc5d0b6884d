// What all requests of a gateway share.
//
// Thread-safety: of the gateway's loop.
// Ownership: owned by the Gateway; exchanges refer to it and have ended before it goes.

#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <unordered_map>

#include "gateway/admission_queue.h"
#include "gateway/gateway_metrics.h"
#include "gateway/gateway_options.h"
#include "gateway/worker_registry.h"
#include "policy/pair_table.h"
#include "policy/profile.h"
#include "policy/resilience.h"
#include "wire/event_loop.h"
#include "wire/http_client.h"

namespace shoal::gateway {

class Exchange;

struct GatewayCore {
  explicit GatewayCore(GatewayOptions given, wire::EventLoop& on)
      : options(std::move(given)),
        loop(on),
        registry(options.breaker),
        pairs(options.breaker),
        profiler(options.classes),
        queue(options.max_running, options.max_queue, options.queue_patience),
        client(std::make_unique<wire::HttpClient>(
            wire::HttpClientOptions{.tls = options.worker_tls, .loop = &on, .max_idle = 256})) {}

  const GatewayOptions options;
  wire::EventLoop& loop;
  WorkerRegistry registry;
  policy::PairTable pairs;
  policy::Profiler profiler;
  policy::RetryBudget retries;
  AdmissionQueue queue;
  GatewayMetrics metrics;
  // 63 bits that nobody can tell from what else this gateway has said: who knows a room can end it.
  std::uint64_t draw_room() { return ((std::uint64_t{secrets()} << 32) | secrets()) >> 1; }

  std::random_device secrets;
  std::mt19937_64 random{(std::uint64_t{std::random_device{}()} << 32) | std::random_device{}()};
  std::uint64_t turn = 0;
  bool draining = false;
  // Requests under way; each takes itself out at its end.
  std::unordered_map<const Exchange*, std::shared_ptr<Exchange>> exchanges;
  std::unique_ptr<wire::HttpClient> client;  // gone first, on the loop: its calls refer to all else
};

}  // namespace shoal::gateway
