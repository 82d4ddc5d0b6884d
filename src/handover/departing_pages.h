// What one rank has computed of a prompt whose KV goes to another worker: a list that only grows, which every
// connection of the room works through at its own pace.
//
// Thread-safety: add() is the executor thread's, next() any's.
// Ownership: as RankRoom.

#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "engine/rank_service.h"
#include "handover/rank_room.h"
#include "handover/terms.h"

namespace shoal::handover {

class DepartingPages final : public RankRoom {
 public:
  DepartingPages(RoomId id, std::int32_t prompt_tokens, Checksums checksums)
      : RankRoom(id), prompt_tokens_(prompt_tokens), checksums_(checksums) {}

  struct Computed {
    engine::ComputedPages pages;
    TimePoint at{};
  };

  std::int32_t prompt_tokens() const { return prompt_tokens_; }
  Checksums checksums() const { return checksums_; }
  void add(const engine::ComputedPages& pages) {
    {
      const std::lock_guard lock(list_mutex_);
      computed_.push_back({pages, now()});
    }
    wake_links();
  }
  // Nothing more comes.
  void finish() {
    {
      const std::lock_guard lock(list_mutex_);
      finished_ = true;
    }
    wake_links();
  }
  bool finished() const {
    const std::lock_guard lock(list_mutex_);
    return finished_;
  }
  // Those from `seen` on.
  std::vector<Computed> next(std::size_t seen) const {
    const std::lock_guard lock(list_mutex_);
    return {computed_.begin() + static_cast<std::ptrdiff_t>(seen), computed_.end()};
  }

 private:
  const std::int32_t prompt_tokens_;
  const Checksums checksums_;
  mutable std::mutex list_mutex_;
  std::vector<Computed> computed_;
  bool finished_ = false;
};

}  // namespace shoal::handover
