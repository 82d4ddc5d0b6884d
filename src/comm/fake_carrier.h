// Carriers between ranks that are threads of one process: for tests of everything above carriers.
//
// Thread-safety: each rank's carrier as Carrier says; the network is safe from any thread.
// Ownership: carriers share the network, which lives as long as the last of them.
// Invariants: a message is copied when sent; at most `capacity` bytes wait between two ranks (one message may
//   always wait), so that code which counts on unlimited buffers is found out.

#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/carrier.h"

namespace shoal::comm {

class FakeNetwork {
 public:
  explicit FakeNetwork(std::int32_t ranks, std::size_t capacity = 4096);

  // One for each rank, in order.
  static std::vector<std::unique_ptr<Carrier>> carriers(std::int32_t ranks, std::size_t capacity = 4096);

 private:
  friend class FakeCarrier;
  using Message = std::vector<std::byte>;
  struct Queue {
    std::deque<Message> messages;
    std::size_t bytes = 0;
  };

  Queue& queue(std::int32_t from, std::int32_t to) {
    return queues_[static_cast<std::size_t>(from * ranks_ + to)];
  }

  std::int32_t ranks_;
  std::size_t capacity_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Queue> queues_;
  std::string aborted_;  // empty: not
};

class FakeCarrier : public Carrier {
 public:
  FakeCarrier(std::shared_ptr<FakeNetwork> network, std::int32_t rank)
      : network_(std::move(network)), rank_(rank) {}

  std::int32_t rank() const override { return rank_; }
  std::int32_t ranks() const override { return network_->ranks_; }
  const char* name() const override { return "fake"; }
  Status transfer(std::span<const Outgoing> out, std::span<const Incoming> in, TimePoint deadline) override;
  void abort(const std::string& reason) override;
  SharedSum* shared_sum(const Group&) override { return nullptr; }

 private:
  Status move_all(std::span<const Outgoing> out, std::span<const Incoming> in, TimePoint deadline);

  std::shared_ptr<FakeNetwork> network_;
  std::int32_t rank_;
  Status failed_;
};

}  // namespace shoal::comm
