// Where the bytes of one room go on one rank: takes writes, from however many connections, checks each
// against what was asked for, puts them in place, and knows when everything is there.
//
// Thread-safety: take() may be called from several threads, one for each connection.
// Ownership: borrows pools and guard.
// Invariants: every (page, layer, head) is written at most once; a write with any cell that was not asked
//   for, or that has come or is coming already, places nothing. What counts as landed has been checked.

#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "core/expected.h"
#include "handover/page_push.h"
#include "handover/peer_memory.h"
#include "handover/room_link.h"
#include "wire/handover_messages.h"

namespace shoal::handover {

class PageLanding {
 public:
  // pages: ascending by group, then logical page, slots within the pools.
  PageLanding(const RankPools& pools, std::uint64_t room, const std::vector<wire::RoomPage>& pages);

  std::uint64_t table() const { return table_; }
  // Pages of a rank of this host that lie where this process can read them.
  struct Direct {
    PeerMemory memory{0};
    std::vector<wire::Offer::Pool> pools;  // by group
  };
  // The frame's body; direct: where the pages are read from, null where their bytes follow. Fails with
  // kCorrupt where it does not fit or its checksum is another. True where it was the last that was missing.
  Expected<bool> take(RoomLink& link, const RoomLink::Frame& frame, PageGuard& guard,
                      const Direct* direct = nullptr);
  bool complete() const;

 private:
  struct Group {
    std::size_t first_cell = 0;
    std::vector<std::int32_t> logical;  // ascending
    std::vector<std::int32_t> slots;
  };
  // Index of the first page among the group's; the cells are marked as coming.
  Expected<std::size_t> claim(const wire::WriteHeader& write);
  Status place(RoomLink& link, const RoomLink::Frame& frame, const wire::WriteHeader& write,
               std::size_t first, PageGuard& guard) const;
  Status fetch(RoomLink& link, const RoomLink::Frame& frame, const wire::WriteHeader& write,
               std::size_t first, PageGuard& guard, const Direct& direct) const;

  const RankPools& pools_;
  const std::uint64_t table_;
  std::vector<Group> groups_;
  mutable std::mutex mutex_;
  std::vector<bool> cells_;  // by group, page, layer, head
  std::size_t missing_ = 0;
};

}  // namespace shoal::handover
