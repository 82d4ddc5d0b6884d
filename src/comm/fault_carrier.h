// A carrier that does harm: at the transfers that a fault plan names it drops, delays, doubles, cuts short or
// damages what goes out, cuts the rank off, or ends or stops its process. For tests of everything above
// carriers.
//
// Thread-safety: as Carrier.
// Ownership: owns the carrier it spoils; shares the plan, whose counts go on from carrier to carrier.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/carrier.h"
#include "comm/fault_plan.h"

namespace shoal::comm {

class FaultCarrier : public Carrier {
 public:
  FaultCarrier(std::unique_ptr<Carrier> carrier, std::shared_ptr<FaultPlan> plan);

  std::int32_t rank() const override { return carrier_->rank(); }
  std::int32_t ranks() const override { return carrier_->ranks(); }
  const char* name() const override { return carrier_->name(); }
  Status transfer(std::span<const Outgoing> out, std::span<const Incoming> in, TimePoint deadline) override;
  std::size_t buffer_bytes(std::int32_t peer) const override { return carrier_->buffer_bytes(peer); }
  void set_spinning(bool spinning) override { carrier_->set_spinning(spinning); }
  void abort(const std::string& reason) override { carrier_->abort(reason); }
  // None: every sum goes through transfer(), where faults are.
  SharedSum* shared_sum(const Group&) override { return nullptr; }

 private:
  std::unique_ptr<Carrier> carrier_;
  std::shared_ptr<FaultPlan> plan_;
  bool cut_ = false;
  std::vector<std::vector<std::byte>> damaged_;
};

}  // namespace shoal::comm
