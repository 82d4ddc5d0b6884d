#include "handover/page_push.h"

#include <algorithm>

#include "kv/page_table.h"

namespace shoal::handover {

PagePush::PagePush(RoomLink& link, DepartingRoom& room, const engine::KvPools& pools, const wire::Room& asked,
                   Checksums checksums)
    : link_(link),
      room_(room),
      pools_(pools),
      checksums_(checksums),
      table_(room_digest(asked.room, asked.pages)),
      asked_(pools.views.size()),
      ready_(pools.views.size()),
      left_(asked.pages.size()) {
  for (const wire::RoomPage& page : asked.pages)
    asked_[static_cast<std::size_t>(page.group)].insert(page.logical);
}

Status PagePush::add(std::span<const kv::NewPage> pages) {
  for (const kv::NewPage& page : pages) {
    const auto group = static_cast<std::size_t>(page.group);
    if (asked_[group].erase(page.logical) > 0) ready_[group].emplace(page.logical, page.page.slot);
  }
  return {};
}

Status PagePush::flush() {
  const TimePoint began = now();
  for (std::size_t group = 0; group < ready_.size(); ++group) {
    const KvLayout& layout = pools_.views[group].layout;
    const std::size_t cell = 2 * layout.tile_bytes() * static_cast<std::size_t>(layout.kv_heads);
    const std::size_t most = std::max<std::size_t>(1, kMostBytes / cell);
    std::vector<std::int32_t> slots;
    auto& ready = ready_[group];
    for (auto at = ready.begin(); at != ready.end();) {
      const std::int32_t first = at->first;
      slots.clear();
      for (; at != ready.end() && at->first == first + std::ssize(slots) && slots.size() < most; ++at)
        slots.push_back(at->second);
      SHOAL_TRY(write_run(static_cast<std::int32_t>(group), first, slots));
    }
    ready.clear();
  }
  seconds_ += seconds_between(began, now());
  return {};
}

Status PagePush::write_run(std::int32_t group, std::int32_t first, std::span<const std::int32_t> slots) {
  const KvLayout& layout = pools_.views[static_cast<std::size_t>(group)].layout;
  for (std::int32_t layer = 0; layer < layout.layers; ++layer) SHOAL_TRY(write(group, layer, first, slots));
  left_ -= slots.size();
  return {};
}

Status PagePush::write(std::int32_t group, std::int32_t layer, std::int32_t first,
                       std::span<const std::int32_t> slots) {
  const KvView& pool = pools_.views[static_cast<std::size_t>(group)];
  const std::size_t data =
      2 * pool.layout.tile_bytes() * static_cast<std::size_t>(pool.layout.kv_heads) * slots.size();
  wire::WriteHeader header;
  header.table = table_;
  header.group = group;
  header.layer = layer;
  header.first_head = 0;
  header.heads = pool.layout.kv_heads;
  header.first_page = first;
  header.pages = static_cast<std::int32_t>(slots.size());
  header.checked = is_checked(checksums_, writes_);
  SHOAL_TRY(link_.begin_frame(wire::MessageType::kWrite,
                              static_cast<std::uint32_t>(wire::WriteHeader::kBytes + data + 8)));
  SHOAL_TRY(link_.put(wire::encode(header)));
  RunningSum sum;
  SHOAL_TRY(for_each_block(pool, layer, 0, pool.layout.kv_heads, slots, [&](std::span<std::byte> block) {
    if (header.checked) {
      const auto hashed = room_.guard().with_pages([&]() -> Status {
        sum.add(block);
        return {};
      });
      if (!hashed.ok()) return hashed;
    }
    return link_.put_pages(block, room_.guard());
  }));
  const std::uint64_t trailer = header.checked ? sum.value() : 0;
  SHOAL_TRY(link_.put(std::as_bytes(std::span(&trailer, 1))));
  link_.end_frame();
  ++writes_;
  bytes_ += data;
  return {};
}

}  // namespace shoal::handover
