#include "comm/fault_carrier.h"

#include <signal.h>

#include <array>
#include <thread>
#include <utility>

namespace shoal::comm {

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
  for (const auto& [known, action] : kNames) {
    if (known == name) return action;
  }
  return std::nullopt;
}

FaultCarrier::FaultCarrier(std::unique_ptr<Carrier> carrier, std::vector<Fault> plan)
    : carrier_(std::move(carrier)), plan_(std::move(plan)) {}

Status FaultCarrier::transfer(std::span<const Outgoing> out, std::span<const Incoming> in,
                              TimePoint deadline) {
  if (cut_) return {ErrorCode::kUnavailable, "this rank is cut off by a fault plan"};
  if (out.empty()) return carrier_->transfer(out, in, deadline);
  ++transfers_;
  const Fault* due = nullptr;
  for (const Fault& fault : plan_) {
    if (fault.rank == rank() && fault.nth == transfers_) due = &fault;
  }
  if (due == nullptr) return carrier_->transfer(out, in, deadline);
  std::vector<Outgoing> changed(out.begin(), out.end());
  damaged_.clear();
  switch (due->action) {
    case FaultAction::kKill:
      raise(SIGKILL);
      break;
    case FaultAction::kStop:
      raise(SIGSTOP);
      break;
    case FaultAction::kCut:
      cut_ = true;
      return {ErrorCode::kUnavailable, "this rank is cut off by a fault plan"};
    case FaultAction::kDrop:
      changed.clear();
      break;
    case FaultAction::kDelay:
      std::this_thread::sleep_for(due->delay);
      break;
    case FaultAction::kDuplicate:
      SHOAL_TRY(carrier_->transfer(out, {}, deadline));
      break;
    case FaultAction::kTruncate:
      for (Outgoing& each : changed) {
        if (!each.bytes.empty()) each.bytes = each.bytes.first(each.bytes.size() - 1);
      }
      break;
    case FaultAction::kCorrupt:
      for (Outgoing& each : changed) {
        auto& copy = damaged_.emplace_back(each.bytes.begin(), each.bytes.end());
        if (!copy.empty()) copy[copy.size() / 2] ^= std::byte{1};
        each.bytes = copy;
      }
      break;
  }
  return carrier_->transfer(changed, in, deadline);
}

}  // namespace shoal::comm
