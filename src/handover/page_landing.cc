#include "handover/page_landing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "handover/terms.h"

namespace shoal::handover {
namespace {

Status check_sum(const wire::WriteHeader& write, std::uint64_t said, const RunningSum& sum) {
  if (said == (write.checked ? sum.value() : 0)) return {};
  return {ErrorCode::kCorrupt, fmt::format("the KV of page {} of layer {} came with other bytes than it was "
                                           "sent with: its checksum differs",
                                           write.first_page, write.layer)};
}

}  // namespace

PageLanding::PageLanding(const RankPools& pools, std::uint64_t room, const std::vector<wire::RoomPage>& pages)
    : pools_(pools), table_(room_digest(room, pages)), groups_(pools.views.size()) {
  for (const wire::RoomPage& page : pages) {
    Group& group = groups_[static_cast<std::size_t>(page.group)];
    group.logical.push_back(page.logical);
    group.slots.push_back(page.slot);
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const KvLayout& layout = pools.views[g].layout;
    groups_[g].first_cell = missing_;
    missing_ += groups_[g].logical.size() * static_cast<std::size_t>(layout.layers * layout.kv_heads);
  }
  cells_.resize(missing_);
}

bool PageLanding::complete() const {
  const std::lock_guard lock(mutex_);
  return missing_ == 0;
}

Expected<std::size_t> PageLanding::claim(const wire::WriteHeader& write) {
  const Status stray(
      ErrorCode::kCorrupt,
      fmt::format("the prefill worker writes page {} of layer {} of KV group {}, which was not "
                  "asked for or has come",
                  write.first_page, write.layer, write.group));
  if (write.table != table_ || write.group < 0 || write.group >= std::ssize(groups_)) return stray;
  const auto g = static_cast<std::size_t>(write.group);
  const KvLayout& layout = pools_.views[g].layout;
  const KvPart& own = pools_.parts[g];
  const Group& group = groups_[g];
  const bool inside = write.layer >= own.first_layer && write.layer - own.first_layer < layout.layers &&
                      write.heads > 0 && write.first_head >= own.first_head &&
                      write.first_head - own.first_head < layout.kv_heads &&
                      write.heads <= layout.kv_heads - (write.first_head - own.first_head) && write.pages > 0;
  if (!inside) return stray;
  const auto at = std::ranges::lower_bound(group.logical, write.first_page);
  const auto pages = static_cast<std::size_t>(write.pages);
  if (pages > static_cast<std::size_t>(group.logical.end() - at)) return stray;
  const auto first = static_cast<std::size_t>(at - group.logical.begin());
  const auto cell = [&](std::size_t page, std::int32_t head) {
    return group.first_cell +
           ((first + page) * static_cast<std::size_t>(layout.layers) +
            static_cast<std::size_t>(write.layer - own.first_layer)) *
               static_cast<std::size_t>(layout.kv_heads) +
           static_cast<std::size_t>(head - own.first_head);
  };
  const std::int32_t last_head = write.first_head + write.heads;
  const std::lock_guard lock(mutex_);
  for (std::size_t page = 0; page < pages; ++page) {
    if (group.logical[first + page] != write.first_page + static_cast<std::int32_t>(page)) return stray;
    for (std::int32_t head = write.first_head; head < last_head; ++head) {
      if (cells_[cell(page, head)]) return stray;
    }
  }
  for (std::size_t page = 0; page < pages; ++page) {
    for (std::int32_t head = write.first_head; head < last_head; ++head) cells_[cell(page, head)] = true;
  }
  return first;
}

Expected<bool> PageLanding::take(RoomLink& link, const RoomLink::Frame& frame, PageGuard& guard,
                                 const Direct* direct) {
  if (frame.length < wire::WriteHeader::kBytes + 8)
    return Status(ErrorCode::kCorrupt, "a write message has other bytes");
  std::array<std::byte, wire::WriteHeader::kBytes> header{};
  SHOAL_TRY(link.receive(header));
  SHOAL_ASSIGN(write, wire::decode_write(header));
  SHOAL_ASSIGN(first, claim(write));
  if (direct == nullptr) {
    SHOAL_TRY(place(link, frame, write, first, guard));
  } else {
    SHOAL_TRY(fetch(link, frame, write, first, guard, *direct));
  }
  const std::lock_guard lock(mutex_);
  missing_ -= static_cast<std::size_t>(write.pages) * static_cast<std::size_t>(write.heads);
  return missing_ == 0;
}

Status PageLanding::place(RoomLink& link, const RoomLink::Frame& frame, const wire::WriteHeader& write,
                          std::size_t first, PageGuard& guard) const {
  const auto g = static_cast<std::size_t>(write.group);
  const KvView& pool = pools_.views[g];
  const KvPart& own = pools_.parts[g];
  const std::size_t data = 2 * pool.layout.tile_bytes() * static_cast<std::size_t>(write.heads) *
                           static_cast<std::size_t>(write.pages);
  if (frame.length != wire::WriteHeader::kBytes + data + 8)
    return {ErrorCode::kCorrupt, "a write message has other bytes"};
  const auto slots = std::span(groups_[g].slots).subspan(first, static_cast<std::size_t>(write.pages));
  RunningSum sum;
  SHOAL_TRY(for_each_block(pool, write.layer - own.first_layer, write.first_head - own.first_head,
                           write.heads, slots, [&](std::span<std::byte> to) {
                             return link.receive_pages(to, guard, [&](std::span<const std::byte> piece) {
                               if (write.checked) sum.add(piece);
                             });
                           }));
  std::uint64_t trailer = 0;
  SHOAL_TRY(link.receive(std::as_writable_bytes(std::span(&trailer, 1))));
  return check_sum(write, trailer, sum);
}

Status PageLanding::fetch(RoomLink& link, const RoomLink::Frame& frame, const wire::WriteHeader& write,
                          std::size_t first, PageGuard& guard, const Direct& direct) const {
  const auto g = static_cast<std::size_t>(write.group);
  const KvView& pool = pools_.views[g];
  const KvPart& own = pools_.parts[g];
  const auto pages = static_cast<std::size_t>(write.pages);
  const wire::Offer::Pool& offered = direct.pools[g];
  std::vector<std::int32_t> from(pages);
  std::uint64_t trailer = 0;
  if (frame.length != wire::WriteHeader::kBytes + pages * sizeof(std::int32_t) + sizeof trailer)
    return {ErrorCode::kCorrupt, "a write message has other bytes"};
  SHOAL_TRY(link.receive(std::as_writable_bytes(std::span(from))));
  SHOAL_TRY(link.receive(std::as_writable_bytes(std::span(&trailer, 1))));
  const bool inside =
      holds(offered.part, {write.layer, 1, write.first_head, write.heads}) &&
      std::ranges::all_of(from, [&](std::int32_t slot) { return slot >= 0 && slot < offered.slots; });
  if (!inside) return {ErrorCode::kCorrupt, "the prefill worker names pages that it has not offered"};

  KvLayout there = pool.layout;
  there.layers = offered.part.layers;
  there.kv_heads = offered.part.heads;
  there.slots = offered.slots;
  const std::size_t tile = pool.layout.tile_bytes();
  const auto to = std::span(groups_[g].slots).subspan(first, pages);
  RunningSum sum;
  std::vector<PeerMemory::Piece> pieces;
  std::size_t bytes = 0;
  const auto read = [&]() -> Status {
    SHOAL_TRY(guard.with_pages([&]() -> Status {
      SHOAL_TRY(direct.memory.read(pieces));
      for (const PeerMemory::Piece& piece : pieces) {
        if (write.checked) sum.add(piece.to);
      }
      return {};
    }));
    pieces.clear();
    bytes = 0;
    return {};
  };
  for (std::int32_t head = write.first_head; head < write.first_head + write.heads; ++head) {
    const std::int32_t here_head = head - own.first_head;
    const std::int32_t there_head = head - offered.part.first_head;
    const std::int32_t here_layer = write.layer - own.first_layer;
    const std::int32_t there_layer = write.layer - offered.part.first_layer;
    for (const bool values : {false, true}) {
      for (std::size_t i = 0; i < pages;) {
        // Pages that are neighbours on both sides.
        std::size_t n = 1;
        while (i + n < pages && (n + 1) * tile <= RoomLink::kPiece &&
               to[i + n] == to[i] + static_cast<std::int32_t>(n) &&
               from[i + n] == from[i] + static_cast<std::int32_t>(n))
          ++n;
        const std::size_t here = values ? pool.layout.v_tile(here_layer, here_head, to[i])
                                        : pool.layout.k_tile(here_layer, here_head, to[i]);
        const std::size_t source = values ? there.v_tile(there_layer, there_head, from[i])
                                          : there.k_tile(there_layer, there_head, from[i]);
        pieces.push_back({offered.base + source, std::span(pool.base + here, n * tile)});
        bytes += n * tile;
        i += n;
        if (bytes >= RoomLink::kPiece || pieces.size() == PeerMemory::kMostPieces) SHOAL_TRY(read());
      }
    }
  }
  if (!pieces.empty()) SHOAL_TRY(read());
  return check_sum(write, trailer, sum);
}

}  // namespace shoal::handover
