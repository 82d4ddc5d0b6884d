// The carrier of a worker on several hosts: between ranks of one host through its memory, to others by the
// network's.
//
// Thread-safety: as Carrier.
// Ownership: owns both carriers.
// Invariants:
//   1. Between two ranks all messages take the same way: they arrive in the order sent.
//   2. A call moves what stays on the host before what leaves it. Ranks make matching calls, so nobody waits
//      in a ring: the first part waits for ranks of this host alone, which are in their first part too.
//   3. Where one way fails the other ends: ranks of this host need not wait for the head to say so.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/carrier.h"

namespace shoal::comm {

class MixedCarrier : public Carrier {
 public:
  // near: of each rank of the worker, whether it is on this host.
  MixedCarrier(std::unique_ptr<Carrier> network, std::unique_ptr<Carrier> host, std::vector<bool> near)
      : network_(std::move(network)),
        host_(std::move(host)),
        near_(std::move(near)),
        name_(std::string(network_->name()) + " and " + host_->name()) {}

  std::int32_t rank() const override { return network_->rank(); }
  std::int32_t ranks() const override { return network_->ranks(); }
  const char* name() const override { return name_.c_str(); }
  Status transfer(std::span<const Outgoing> out, std::span<const Incoming> in, TimePoint deadline) override {
    split(out, near_out_, far_out_);
    split(in, near_in_, far_in_);
    Status status;
    // An empty call would still say what has failed before.
    if (!near_out_.empty() || !near_in_.empty() || (out.empty() && in.empty()))
      status = host_->transfer(near_out_, near_in_, deadline);
    if (status.ok() && (!far_out_.empty() || !far_in_.empty()))
      status = network_->transfer(far_out_, far_in_, deadline);
    if (!status.ok()) abort(status.message());
    return status;
  }
  std::size_t buffer_bytes(std::int32_t peer) const override {
    return near_[static_cast<std::size_t>(peer)] ? host_->buffer_bytes(peer) : network_->buffer_bytes(peer);
  }
  void set_spinning(bool spinning) override {
    network_->set_spinning(spinning);
    host_->set_spinning(spinning);
  }
  void abort(const std::string& reason) override {
    network_->abort(reason);
    host_->abort(reason);
  }
  std::span<std::byte> arena() override { return host_->arena(); }
  SharedSum* shared_sum(const Group& group) override { return host_->shared_sum(group); }

 private:
  template <typename Message>
  void split(std::span<const Message> all, std::vector<Message>& near, std::vector<Message>& far) const {
    near.clear();
    far.clear();
    for (const Message& each : all) (near_[static_cast<std::size_t>(each.peer)] ? near : far).push_back(each);
  }

  std::unique_ptr<Carrier> network_;
  std::unique_ptr<Carrier> host_;
  std::vector<bool> near_;
  std::string name_;
  // Of the call at hand; kept for their capacity.
  std::vector<Outgoing> near_out_, far_out_;
  std::vector<Incoming> near_in_, far_in_;
};

}  // namespace shoal::comm
