#include "kv/offload_table.h"

namespace shoal::kv {

OffloadTable::OffloadTable(std::int32_t pools, std::int32_t places) {
  for (std::int32_t pool = 0; pool < pools; ++pool) pools_.emplace_back(pool, places);
}

bool OffloadTable::has_room(std::span<const std::int32_t> needed) const {
  for (std::size_t pool = 0; pool < needed.size(); ++pool) {
    if (pools_[pool].free() < needed[pool]) return false;
  }
  return true;
}

bool OffloadTable::take(std::int32_t group, std::int32_t logical, PageId page, StowedPages& into) {
  auto place = pools_[static_cast<std::size_t>(page.pool)].take(1);
  if (!place.ok()) return false;
  into.pages.push_back({group, logical, place->front()});
  return true;
}

void OffloadTable::release(const StowedPages& stowed) {
  for (const StowedPage& page : stowed.pages)
    pools_[static_cast<std::size_t>(page.place.pool)].release(page.place);
}

void OffloadTable::clear() {
  const std::int32_t places = this->places();
  for (std::size_t pool = 0; pool < pools_.size(); ++pool)
    pools_[pool] = PagePool(static_cast<std::int32_t>(pool), places);
}

}  // namespace shoal::kv
