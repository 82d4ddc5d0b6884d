#include "comm/fault_plan.h"

#include <signal.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace shoal::comm {
namespace {

template <typename T, std::size_t N>
std::optional<T> named(const std::array<std::pair<std::string_view, T>, N>& names, std::string_view name) {
  for (const auto& [known, value] : names) {
    if (known == name) return value;
  }
  return std::nullopt;
}

}  // namespace

std::optional<FaultPoint> fault_point_from_name(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, FaultPoint>, kFaultPoints> kNames = {{
      {"transfer", FaultPoint::kTransfer},
      {"join", FaultPoint::kJoin},
      {"loaded", FaultPoint::kLoaded},
      {"start", FaultPoint::kStart},
      {"ready", FaultPoint::kReady},
      {"plan", FaultPoint::kPlan},
  }};
  return named(kNames, name);
}

std::optional<FaultAction> fault_action_from_name(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, FaultAction>, 8> kNames = {{
      {"kill", FaultAction::kKill},
      {"stop", FaultAction::kStop},
      {"cut", FaultAction::kCut},
      {"drop", FaultAction::kDrop},
      {"delay", FaultAction::kDelay},
      {"duplicate", FaultAction::kDuplicate},
      {"truncate", FaultAction::kTruncate},
      {"corrupt", FaultAction::kCorrupt},
  }};
  return named(kNames, name);
}

bool harms_any_point(FaultAction action) {
  return action == FaultAction::kKill || action == FaultAction::kStop || action == FaultAction::kDelay;
}

std::optional<Fault> FaultPlan::reach(FaultPoint at, std::int32_t rank) {
  const std::uint64_t count = ++reached_[static_cast<std::size_t>(at)];
  const auto due = std::ranges::find_if(faults_, [&](const Fault& fault) {
    return fault.at == at && fault.rank == rank && fault.nth == count;
  });
  if (due == faults_.end()) return std::nullopt;
  const Fault fault = *due;
  faults_.erase(due);
  return fault;
}

void FaultPlan::pass(FaultPoint at, std::int32_t rank) {
  if (const auto fault = reach(at, rank)) harm(*fault);
}

void FaultPlan::harm(const Fault& fault) {
  if (fault.action == FaultAction::kKill) raise(SIGKILL);
  if (fault.action == FaultAction::kStop) raise(SIGSTOP);
  if (fault.action == FaultAction::kDelay) std::this_thread::sleep_for(fault.delay);
}

}  // namespace shoal::comm
