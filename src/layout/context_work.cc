#include "layout/context_work.h"

#include <algorithm>

namespace shoal {

double ContextWorkCounts::most() const { return *std::ranges::max_element(exact); }

ContextWorkCounts count_context_work(ContextPartition partition, std::int32_t coordinates,
                                     std::int32_t pages) {
  const auto size = static_cast<std::size_t>(coordinates);
  ContextWorkCounts counts{std::vector<double>(size), std::vector<double>(size), std::vector<double>(size)};
  const auto owners = deal_pages(partition, {0, coordinates, coordinates}, 0, pages);
  const double side = static_cast<double>(pages) / (2 * coordinates);  // of a block, in pages
  for (std::int32_t page = 0; page < pages; ++page) {
    const auto owner = static_cast<std::size_t>(owners[static_cast<std::size_t>(page)]);
    const bool masked = partition == ContextPartition::kMasked;
    // A page's queries see the pages before it and half of its own.
    const double seen = masked ? pages : page + 0.5;
    const double blocks = masked ? 2.0 * coordinates : static_cast<std::int32_t>(page / side) + 1.0;
    counts.exact[owner] += seen / (side * side);
    counts.whole[owner] += blocks / side;
    counts.kv_share[owner] += 1.0 / pages;
  }
  return counts;
}

double ring_hidden_from(const RingSpeeds& speeds, std::int32_t coordinates) {
  return static_cast<double>(coordinates) * speeds.kv_heads * static_cast<double>(speeds.kv_value_bytes) *
         speeds.attention_flops / (speeds.query_heads * speeds.link_bytes);
}

}  // namespace shoal
