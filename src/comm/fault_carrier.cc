#include "comm/fault_carrier.h"

#include <utility>

namespace shoal::comm {

FaultCarrier::FaultCarrier(std::unique_ptr<Carrier> carrier, std::shared_ptr<FaultPlan> plan)
    : carrier_(std::move(carrier)), plan_(std::move(plan)) {}

Status FaultCarrier::transfer(std::span<const Outgoing> out, std::span<const Incoming> in,
                              TimePoint deadline) {
  if (cut_) return {ErrorCode::kUnavailable, "this rank is cut off by a fault plan"};
  if (out.empty()) return carrier_->transfer(out, in, deadline);
  const auto due = plan_->reach(FaultPoint::kTransfer, rank());
  if (!due) return carrier_->transfer(out, in, deadline);
  std::vector<Outgoing> changed(out.begin(), out.end());
  damaged_.clear();
  switch (due->action) {
    case FaultAction::kKill:
    case FaultAction::kStop:
    case FaultAction::kDelay:
      FaultPlan::harm(*due);
      break;
    case FaultAction::kCut:
      cut_ = true;
      return {ErrorCode::kUnavailable, "this rank is cut off by a fault plan"};
    case FaultAction::kDrop:
      changed.clear();
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
