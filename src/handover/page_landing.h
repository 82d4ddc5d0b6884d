// Where the bytes of one room go: takes writes, checks each against what was asked for, puts them in place,
// and knows what is still missing.
//
// Thread-safety: belongs to the room's thread.
// Ownership: borrows pools and guard.
// Invariants: every (page, layer, head) is written at most once; a write with any cell that was not asked
//   for, or that has come already, places nothing.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/expected.h"
#include "engine/engine.h"
#include "handover/room_link.h"
#include "wire/handover_messages.h"

namespace shoal::handover {

class PageLanding {
 public:
  // pages: ascending by group, then logical page.
  PageLanding(const engine::KvPools& pools, std::uint64_t room, const std::vector<wire::RoomPage>& pages);

  // The frame's body. Fails with kCorrupt where it does not fit or its checksum is another.
  Status take(RoomLink& link, const RoomLink::Frame& frame, PageGuard& guard);
  // Whether all that was sent, and all that was asked for where it is needed, has come.
  Status check(const wire::Commit& commit) const;

 private:
  struct Group {
    std::size_t first_cell = 0;
    std::vector<std::int32_t> logical;  // ascending
    std::vector<std::int32_t> slots;
  };
  // Index of the first page among the group's; the cells are marked as come.
  Expected<std::size_t> claim(const wire::WriteHeader& write);

  const engine::KvPools& pools_;
  const std::uint64_t table_;
  std::vector<Group> groups_;
  std::vector<bool> cells_;  // by group, page, layer, head
  std::size_t missing_ = 0;
  std::uint64_t writes_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace shoal::handover
