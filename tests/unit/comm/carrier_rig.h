// Ranks as threads of this process, over any carrier.

#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/carrier.h"
#include "comm/collectives.h"
#include "comm/fake_carrier.h"
#include "comm/shm_carrier.h"
#include "comm/tcp_carrier.h"
#include "comm/tcp_mesh.h"
#include "core/thread_pool.h"

namespace shoal::comm {

struct RigOptions {
  std::string carrier = "fake";
  std::int32_t ranks = 2;
  std::int32_t lanes = 1;
  std::size_t piece_bytes = 1 << 16;
  std::size_t ring_bytes = 1 << 13;
  std::size_t arena_bytes = 0;
  int pauses = 0;  // these tests run on machines with fewer cores than ranks
  std::chrono::milliseconds timeout{60'000};
  std::vector<std::int32_t> hosts{};  // of each rank; empty: one
  DType wire = DType::kF32;
};

inline Group whole_group(std::int32_t ranks, std::int32_t index) {
  Group group;
  for (std::int32_t rank = 0; rank < ranks; ++rank) group.ranks.push_back(rank);
  group.index = index;
  return group;
}

class CarrierRig {
 public:
  explicit CarrierRig(RigOptions options);

  Carrier& carrier(std::int32_t rank) { return *carriers_[static_cast<std::size_t>(rank)]; }
  Ledger& ledger(std::int32_t rank) { return *ledgers_[static_cast<std::size_t>(rank)]; }
  Collectives collectives(std::int32_t rank) {
    Collectives::Options options;
    options.timeout = options_.timeout;
    options.hosts = options_.hosts;
    options.wire = options_.wire;
    return Collectives(carrier(rank), whole_group(options_.ranks, rank), ledger(rank), options);
  }

  // f(rank, collectives) on a thread for each rank of [first, ranks).
  void run(const std::function<void(std::int32_t, Collectives&)>& f, std::int32_t first = 0) {
    std::vector<std::thread> threads;
    for (std::int32_t rank = first; rank < options_.ranks; ++rank) {
      threads.emplace_back([&, rank] {
        Collectives mine = collectives(rank);
        f(rank, mine);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  RigOptions options_;
  std::vector<std::unique_ptr<ThreadPool>> pools_;
  std::vector<std::unique_ptr<Carrier>> carriers_;
  std::vector<std::unique_ptr<Ledger>> ledgers_;
};

// Runs f(rank, sockets to the others) on a thread for each rank, which have met over loopback.
template <typename F>
void meet_over_loopback(std::int32_t ranks, F&& f) {
  std::vector<Listener> listeners;
  std::vector<Endpoint> endpoints;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    listeners.push_back(*Listener::open("127.0.0.1", 0));
    endpoints.push_back({"127.0.0.1", listeners.back().port()});
  }
  const auto token = *wire::ClusterToken::draw();
  std::vector<std::thread> threads;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      auto sockets = connect_mesh(rank, endpoints, listeners[static_cast<std::size_t>(rank)], token, Epoch(1),
                                  now() + std::chrono::seconds(60));
      if (!sockets.ok()) throw std::runtime_error(sockets.error().message());
      f(rank, *std::move(sockets));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

inline std::vector<std::unique_ptr<Carrier>> tcp_carriers(std::int32_t ranks) {
  std::vector<std::unique_ptr<Carrier>> carriers(static_cast<std::size_t>(ranks));
  meet_over_loopback(ranks, [&](std::int32_t rank, std::vector<Socket> sockets) {
    carriers[static_cast<std::size_t>(rank)] =
        std::make_unique<TcpCarrier>(rank, std::move(sockets), TcpCarrier::Options{0});
  });
  return carriers;
}

inline CarrierRig::CarrierRig(RigOptions options) : options_(std::move(options)) {
  for (std::int32_t rank = 0; rank < options_.ranks; ++rank) ledgers_.push_back(std::make_unique<Ledger>());
  if (options_.carrier == "fake") {
    carriers_ = FakeNetwork::carriers(options_.ranks, options_.ring_bytes);
    return;
  }
  if (options_.carrier == "tcp") {
    carriers_ = tcp_carriers(options_.ranks);
    return;
  }
  ShmLayout layout;
  layout.ranks = options_.ranks;
  layout.lanes = options_.lanes;
  layout.piece_bytes = options_.piece_bytes;
  layout.ring_bytes = options_.ring_bytes;
  layout.arena_bytes = options_.arena_bytes;
  layout.groups = {whole_group(options_.ranks, 0).ranks};
  auto segment = ShmSegment::create(layout);
  if (!segment.ok()) throw std::runtime_error(segment.error().message());
  for (std::int32_t rank = 0; rank < options_.ranks; ++rank) {
    ThreadPool::Options pool;
    pool.threads = options_.lanes;
    pool.spin = std::chrono::microseconds(0);
    pool.pin = false;
    pools_.push_back(options_.lanes > 1 ? std::make_unique<ThreadPool>(pool) : nullptr);
    // One mapping for all: ThreadSanitizer sees every access.
    carriers_.push_back(std::make_unique<ShmCarrier>(
        *segment, rank, ShmCarrier::Options{Patience{options_.pauses}, pools_.back().get()}));
  }
}

}  // namespace shoal::comm
