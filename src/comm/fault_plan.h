// Harm done on purpose to a rank, at a moment that is known beforehand: the nth time that it reaches a point.
// For tests of everything above carriers.
//
// Thread-safety: none; a plan belongs to one rank's executor thread.
// Invariants: what is harmed depends on the faults and the counts alone; each fault is done once.

#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace shoal::comm {

enum class FaultPoint : std::uint8_t {
  kTransfer,  // a transfer with something to send
  kJoin,      // about to join
  kLoaded,    // about to say what it has loaded
  kStart,     // about to connect its carriers
  kReady,     // about to say that it is ready
  kPlan,      // about to run a step plan
};
inline constexpr std::size_t kFaultPoints = 6;
std::optional<FaultPoint> fault_point_from_name(std::string_view name);

enum class FaultAction : std::uint8_t {
  kKill,   // SIGKILL to this process
  kStop,   // SIGSTOP to this process
  kDelay,  // it goes on later
  kCut,    // of a transfer, as all that follow: this rank's carrier fails from now on; the others see nothing
  kDrop,   // what goes out is lost
  kDuplicate,  // it goes out twice
  kTruncate,   // without its last byte
  kCorrupt,    // with one bit turned
};
std::optional<FaultAction> fault_action_from_name(std::string_view name);
// Whether it makes sense elsewhere than at a transfer.
bool harms_any_point(FaultAction action);

struct Fault {
  FaultPoint at = FaultPoint::kTransfer;
  std::uint64_t nth = 1;  // from 1
  std::int32_t rank = 0;
  FaultAction action = FaultAction::kDrop;
  std::chrono::milliseconds delay{0};
};

class FaultPlan {
 public:
  explicit FaultPlan(std::vector<Fault> faults) : faults_(std::move(faults)) {}

  // Counts; the fault that is due, which is done with then.
  std::optional<Fault> reach(FaultPoint at, std::int32_t rank);
  // Counts, and does what is due: of those that harm any point.
  void pass(FaultPoint at, std::int32_t rank);
  static void harm(const Fault& fault);

 private:
  std::vector<Fault> faults_;
  std::array<std::uint64_t, kFaultPoints> reached_{};
};

}  // namespace shoal::comm
