// The carrier of a worker on several hosts: messages by TCP; sums of a group that is on one host through its
// memory.
//
// Thread-safety: as Carrier.
// Ownership: owns both carriers.
// Invariants: between two ranks all messages take the same way: they arrive in the order sent.

#pragma once

#include <memory>
#include <string>
#include <utility>

#include "comm/carrier.h"

namespace shoal::comm {

class MixedCarrier : public Carrier {
 public:
  MixedCarrier(std::unique_ptr<Carrier> messages, std::unique_ptr<Carrier> sums)
      : messages_(std::move(messages)), sums_(std::move(sums)) {}

  std::int32_t rank() const override { return messages_->rank(); }
  std::int32_t ranks() const override { return messages_->ranks(); }
  const char* name() const override { return "tcp and shm"; }
  Status transfer(std::span<const Outgoing> out, std::span<const Incoming> in, TimePoint deadline) override {
    return messages_->transfer(out, in, deadline);
  }
  void abort(const std::string& reason) override {
    messages_->abort(reason);
    sums_->abort(reason);
  }
  std::span<std::byte> arena() override { return sums_->arena(); }
  SharedSum* shared_sum(const Group& group) override { return sums_->shared_sum(group); }

 private:
  std::unique_ptr<Carrier> messages_;
  std::unique_ptr<Carrier> sums_;
};

}  // namespace shoal::comm
