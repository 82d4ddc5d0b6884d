// Writes what one rank of a decode worker has asked of one rank of a prefill worker, each page, layer and
// head once, as they are computed.
//
// Thread-safety: belongs to the connection's thread.
// Ownership: borrows link and room.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/clock.h"
#include "core/expected.h"
#include "handover/departing_pages.h"
#include "handover/room_link.h"
#include "handover/terms.h"
#include "wire/handover_messages.h"

namespace shoal::handover {

// The pools of one rank, and what of the model they hold.
struct RankPools {
  std::vector<KvView> views;          // by group
  std::vector<KvPart> parts;          // by group
  std::vector<std::int32_t> windows;  // by group; 0: all positions are seen
};

// Whether the part is one, of at least a layer and a head, and inside the whole.
bool holds(const KvPart& whole, const KvPart& part);

class PagePush {
 public:
  // Data of one write: long enough to fill a link, short enough that checks and aborts come in between.
  static constexpr std::size_t kMostBytes = std::size_t{1} << 20;

  // Fails with kCorrupt where what is asked for is not on this rank, or not of such a prompt.
  static Expected<PagePush> make(RoomLink& link, RankRoom& room, const RankPools& pools, wire::Fetch asked,
                                 std::int32_t prompt_tokens, Checksums checksums);

  // What of it was asked for.
  Status write(const DepartingPages::Computed& computed);
  // From now on the other side reads the pages itself, and is told which.
  void set_direct() { direct_ = true; }
  bool direct() const { return direct_; }
  std::uint64_t writes() const { return writes_; }
  std::uint64_t bytes() const { return bytes_; }
  double seconds() const { return seconds_; }        // spent writing
  TimePoint last_computed() const { return last_; }  // of what has been written

 private:
  PagePush(RoomLink& link, RankRoom& room, const RankPools& pools, wire::Fetch asked, Checksums checksums)
      : link_(&link), room_(&room), pools_(&pools), asked_(std::move(asked)), checksums_(checksums) {}
  Status send_blocks(const engine::ComputedPages& pages, const KvPart& part,
                     std::span<const std::int32_t> slots, RunningSum* sum);
  Status write_run(const engine::ComputedPages& pages, const KvPart& part, std::int32_t first,
                   std::span<const std::int32_t> slots);

  RoomLink* link_;
  RankRoom* room_;
  const RankPools* pools_;
  wire::Fetch asked_;
  Checksums checksums_;
  std::vector<std::vector<std::int32_t>> pages_;  // by group: logical pages asked for, ascending
  std::uint64_t writes_ = 0;
  std::uint64_t bytes_ = 0;
  bool direct_ = false;
  double seconds_ = 0;
  TimePoint last_{};
};

}  // namespace shoal::handover
