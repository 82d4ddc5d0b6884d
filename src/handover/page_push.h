// Writes one room's pages to its connection as they are computed, each once.
//
// Thread-safety: belongs to the connection's thread.
// Ownership: borrows link, room and pools.

#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "core/clock.h"
#include "core/expected.h"
#include "engine/engine.h"
#include "handover/departing_room.h"
#include "handover/room_link.h"
#include "handover/terms.h"

namespace shoal::handover {

class PagePush {
 public:
  // Data of one write: long enough to fill a link, short enough that checks and aborts come in between.
  static constexpr std::size_t kMostBytes = std::size_t{1} << 20;

  PagePush(RoomLink& link, DepartingRoom& room, const engine::KvPools& pools, const wire::Room& asked,
           Checksums checksums);

  // Takes over what of these pages was asked for.
  Status add(std::span<const kv::NewPage> pages);
  // Writes all that has been taken over.
  Status flush();
  // Everything asked for has been written.
  bool complete() const { return left_ == 0; }
  std::uint64_t writes() const { return writes_; }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t table() const { return table_; }
  double seconds() const { return seconds_; }

 private:
  Status write_run(std::int32_t group, std::int32_t first, std::span<const std::int32_t> slots);
  Status write(std::int32_t group, std::int32_t layer, std::int32_t first,
               std::span<const std::int32_t> slots);

  RoomLink& link_;
  DepartingRoom& room_;
  const engine::KvPools& pools_;
  const Checksums checksums_;
  const std::uint64_t table_;
  std::vector<std::set<std::int32_t>> asked_;                // by group: logical pages not yet here
  std::vector<std::map<std::int32_t, std::int32_t>> ready_;  // by group: logical page to slot, to be written
  std::size_t left_ = 0;
  std::uint64_t writes_ = 0;
  std::uint64_t bytes_ = 0;
  double seconds_ = 0;  // spent writing
};

}  // namespace shoal::handover
