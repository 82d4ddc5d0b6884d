// A room on one rank of a decode worker: its pages, and where they come from.
//
// Thread-safety: any thread.
// Ownership: as RankRoom.

#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "handover/page_landing.h"
#include "handover/rank_room.h"
#include "wire/handover_messages.h"

namespace shoal::handover {

class LandingPages final : public RankRoom {
 public:
  LandingPages(std::shared_ptr<const RankPools> pools, wire::RankWord asked)
      : RankRoom(asked.room),
        pools_(std::move(pools)),
        asked_(std::move(asked)),
        landing_(*pools_, asked_.room, asked_.pages) {}

  const wire::RankWord& asked() const { return asked_; }
  std::size_t asked_groups() const { return pools_->views.size(); }
  PageLanding& landing() { return landing_; }
  // One source more has nothing to add: true for the last.
  bool confirm() { return ++confirmed_ == asked_.sources.size(); }

 private:
  const std::shared_ptr<const RankPools> pools_;
  const wire::RankWord asked_;
  PageLanding landing_;
  std::atomic<std::size_t> confirmed_{0};
};

}  // namespace shoal::handover
