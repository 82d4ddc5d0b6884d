// A carrier that does harm: at the nth transfer of a rank it drops, delays, doubles, cuts short or damages
// what goes out, cuts the rank off, or ends or stops its process. For tests of everything above carriers.
//
// Thread-safety: as Carrier.
// Ownership: owns the carrier it spoils.
// Invariants: which transfer is harmed depends on the plan and the count of transfers alone.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "comm/carrier.h"

namespace shoal::comm {

enum class FaultAction : std::uint8_t {
  kKill,       // SIGKILL to this process
  kStop,       // SIGSTOP to this process
  kCut,        // this rank's carrier fails from now on; the others see nothing
  kDrop,       // what goes out is lost
  kDelay,      // it goes out later
  kDuplicate,  // twice
  kTruncate,   // without its last byte
  kCorrupt,    // with one bit turned
};
std::optional<FaultAction> fault_action_from_name(std::string_view name);

struct Fault {
  std::uint64_t nth = 1;  // transfer with something to send, counted from 1
  std::int32_t rank = 0;
  FaultAction action = FaultAction::kDrop;
  std::chrono::milliseconds delay{0};
};

class FaultCarrier : public Carrier {
 public:
  FaultCarrier(std::unique_ptr<Carrier> carrier, std::vector<Fault> plan);

  std::int32_t rank() const override { return carrier_->rank(); }
  std::int32_t ranks() const override { return carrier_->ranks(); }
  const char* name() const override { return carrier_->name(); }
  Status transfer(std::span<const Outgoing> out, std::span<const Incoming> in, TimePoint deadline) override;
  void abort(const std::string& reason) override { carrier_->abort(reason); }
  // None: every sum goes through transfer(), where faults are.
  SharedSum* shared_sum(const Group&) override { return nullptr; }

 private:
  std::unique_ptr<Carrier> carrier_;
  std::vector<Fault> plan_;
  std::uint64_t transfers_ = 0;
  bool cut_ = false;
  std::vector<std::vector<std::byte>> damaged_;
};

}  // namespace shoal::comm
