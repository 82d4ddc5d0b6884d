#include "handover/page_push.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kv/page_table.h"

namespace shoal::handover {

bool holds(const KvPart& whole, const KvPart& part) {
  // Wide: either side's numbers may be a peer's.
  const auto covers = [](std::int64_t first, std::int64_t n, std::int64_t part_first, std::int64_t part_n) {
    return part_n > 0 && part_first >= first && part_first + part_n <= first + n;
  };
  return covers(whole.first_layer, whole.layers, part.first_layer, part.layers) &&
         covers(whole.first_head, whole.heads, part.first_head, part.heads);
}

Expected<PagePush> PagePush::make(RoomLink& link, RankRoom& room, const RankPools& pools, wire::Fetch asked,
                                  std::int32_t prompt_tokens, Checksums checksums) {
  PagePush push(link, room, pools, std::move(asked), checksums);
  const auto groups = std::ssize(pools.views);
  for (const wire::GroupPart& each : push.asked_.parts) {
    if (each.group < 0 || each.group >= groups ||
        !holds(pools.parts[static_cast<std::size_t>(each.group)], each.part))
      return Status(
          ErrorCode::kCorrupt,
          fmt::format("{} heads from {} on of {} layers from {} on of KV group {} are not on this rank",
                      each.part.heads, each.part.first_head, each.part.layers, each.part.first_layer,
                      each.group));
  }
  push.pages_.resize(pools.views.size());
  std::pair<std::int32_t, std::int32_t> last{-1, -1};
  for (const wire::RoomPage& page : push.asked_.pages) {
    const std::pair at{page.group, page.logical};
    const auto group = static_cast<std::size_t>(page.group);
    // Those behind a window may be given out again before they are sent.
    if (at <= last || page.group < 0 || page.group >= groups ||
        page.logical >= kv::pages_for(prompt_tokens) ||
        page.logical < first_visible_page(prompt_tokens, pools.windows[group]))
      return Status(ErrorCode::kCorrupt,
                    fmt::format("a room asks for page {} of KV group {}: there is no such thing",
                                page.logical, page.group));
    push.pages_[group].push_back(page.logical);
    last = at;
  }
  return push;
}

Status PagePush::write(const DepartingPages::Computed& computed) {
  const engine::ComputedPages& pages = computed.pages;
  const auto group = static_cast<std::size_t>(pages.group);
  const KvLayout& layout = pools_->views[group].layout;
  const std::vector<std::int32_t>& asked = pages_[group];
  for (const wire::GroupPart& each : asked_.parts) {
    const KvPart& part = each.part;
    if (each.group != pages.group || pages.layer < part.first_layer ||
        pages.layer >= part.first_layer + part.layers)
      continue;
    const std::size_t cell = 2 * layout.tile_bytes() * static_cast<std::size_t>(part.heads);
    const std::size_t most = std::max<std::size_t>(1, kMostBytes / cell);
    for (const engine::SlotRun& run : *pages.runs) {
      // Asked-for pages of the run that follow each other.
      auto at = std::ranges::lower_bound(asked, run.first);
      const std::int32_t end = run.first + static_cast<std::int32_t>(run.slots.size());
      while (at != asked.end() && *at < end) {
        const std::int32_t first = *at;
        std::size_t n = 0;
        for (; at != asked.end() && *at < end && *at == first + static_cast<std::int32_t>(n) && n < most;
             ++at)
          ++n;
        SHOAL_TRY(write_run(pages, part, first,
                            std::span(run.slots).subspan(static_cast<std::size_t>(first - run.first), n)));
        last_ = computed.at;
      }
    }
  }
  return {};
}

// sum: of what is sent, or would be; null: it is not asked for.
Status PagePush::send_blocks(const engine::ComputedPages& pages, const KvPart& part,
                             std::span<const std::int32_t> slots, RunningSum* sum) {
  const auto group = static_cast<std::size_t>(pages.group);
  const KvPart& own = pools_->parts[group];
  const auto seen = [&](std::span<const std::byte> piece) {
    if (sum != nullptr) sum->add(piece);
  };
  return for_each_block(pools_->views[group], pages.layer - own.first_layer, part.first_head - own.first_head,
                        part.heads, slots, [&](std::span<std::byte> block) -> Status {
                          if (!direct_) return link_->put_pages(block, room_->guard(), seen);
                          // Whole, at most kMostBytes: a sum takes some 100 us.
                          return room_->guard().with_pages([&]() -> Status {
                            seen(block);
                            return {};
                          });
                        });
}

Status PagePush::write_run(const engine::ComputedPages& pages, const KvPart& part, std::int32_t first,
                           std::span<const std::int32_t> slots) {
  const TimePoint began = now();
  const KvLayout& layout = pools_->views[static_cast<std::size_t>(pages.group)].layout;
  const std::size_t data = 2 * layout.tile_bytes() * static_cast<std::size_t>(part.heads) * slots.size();
  wire::WriteHeader header;
  header.table = asked_.table;
  header.group = pages.group;
  header.layer = pages.layer;
  header.first_head = part.first_head;
  header.heads = part.heads;
  header.first_page = first;
  header.pages = static_cast<std::int32_t>(slots.size());
  header.checked = is_checked(checksums_, writes_);
  RunningSum sum;
  if (direct_) {
    if (header.checked) SHOAL_TRY(send_blocks(pages, part, slots, &sum));
    std::vector<std::byte> body = wire::encode(header);
    const std::uint64_t trailer = header.checked ? sum.value() : 0;
    for (const auto bytes : {std::as_bytes(slots), std::as_bytes(std::span(&trailer, 1))})
      body.insert(body.end(), bytes.begin(), bytes.end());
    SHOAL_TRY(link_->send(wire::MessageType::kWrite, body));
  } else {
    SHOAL_TRY(link_->begin_frame(wire::MessageType::kWrite,
                                 static_cast<std::uint32_t>(wire::WriteHeader::kBytes + data + 8),
                                 wire::encode(header)));
    SHOAL_TRY(send_blocks(pages, part, slots, header.checked ? &sum : nullptr));
    const std::uint64_t trailer = header.checked ? sum.value() : 0;
    SHOAL_TRY(link_->put(std::as_bytes(std::span(&trailer, 1))));
    link_->end_frame();
  }
  ++writes_;
  bytes_ += data;
  seconds_ += seconds_between(began, now());
  return {};
}

}  // namespace shoal::handover
