#include "layout/context_partition.h"

#include <algorithm>
#include <array>
#include <utility>

#include "layout/kv_groups.h"

namespace shoal {
namespace {

constexpr std::array<std::pair<std::string_view, ContextPartition>, 4> kPartitions = {
    {{"zigzag", ContextPartition::kZigzag},
     {"striped", ContextPartition::kStriped},
     {"contiguous", ContextPartition::kContiguous},
     {"masked", ContextPartition::kMasked}}};

}  // namespace

std::optional<ContextPartition> partition_from_name(std::string_view name) {
  for (const auto& [known, partition] : kPartitions) {
    if (known == name) return partition;
  }
  return std::nullopt;
}

std::string_view partition_name(ContextPartition partition) {
  for (const auto& [name, known] : kPartitions) {
    if (known == partition) return name;
  }
  return "";
}

std::vector<std::int32_t> deal_pages(ContextPartition partition, const ContextLanes& lanes,
                                     std::int32_t first_page, std::int32_t pages) {
  const std::int32_t degree = lanes.degree;
  std::vector<std::int32_t> owners(static_cast<std::size_t>(pages));
  if (partition == ContextPartition::kStriped) {
    for (std::int32_t i = 0; i < pages; ++i)
      owners[static_cast<std::size_t>(i)] = lanes.at((first_page + i) % degree);
    return owners;
  }
  const bool zigzag = partition != ContextPartition::kContiguous;
  const std::int32_t blocks = zigzag ? 2 * degree : degree;
  // Units are cut at multiples of `unit` pages; the first and the last may be short.
  const std::int32_t first_unit = first_page / kSegmentPages;
  const std::int32_t segments = (first_page + pages - 1) / kSegmentPages - first_unit + 1;
  // Eight in each block: a block that gets one more or less has an eighth more or less to do.
  const bool whole_segments = segments % blocks == 0 || segments >= 8 * blocks;
  const std::int32_t units = whole_segments ? segments : pages;
  for (std::int32_t i = 0; i < pages; ++i) {
    const std::int32_t unit = whole_segments ? (first_page + i) / kSegmentPages - first_unit : i;
    // The block whose range [units * b / blocks, units * (b + 1) / blocks), rounded, holds the unit; of fewer
    // units than blocks each its own, so that a lone page is the first lane's.
    const std::int64_t half = units < blocks ? 0 : 1;
    const auto block =
        static_cast<std::int32_t>((std::int64_t{2} * unit + half) * blocks / (std::int64_t{2} * units));
    const std::int32_t lane = block < degree ? block : 2 * degree - 1 - block;
    owners[static_cast<std::size_t>(i)] = lanes.at(lane);
  }
  return owners;
}

}  // namespace shoal
