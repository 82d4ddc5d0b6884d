// Which coordinate owns which page of a prompt that several compute together.
//
// Thread-safety: pure functions.

#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace shoal {

// How the new pages of a chunk are dealt to M coordinates.
enum class ContextPartition : std::uint8_t {
  kZigzag,      // 2 M blocks; coordinate r gets block r and block 2 M - 1 - r: equal work under a causal mask
  kStriped,     // page by page in turn
  kContiguous,  // M blocks: the last coordinate has nearly all there is to do
  kMasked,      // as zigzag, and what the mask hides is computed and thrown away
};
std::optional<ContextPartition> partition_from_name(std::string_view name);
std::string_view partition_name(ContextPartition partition);

// The coordinates that compute a prompt: `degree` of `coordinates`, from `first` on, in turn.
struct ContextLanes {
  std::int32_t first = 0;
  std::int32_t degree = 1;
  std::int32_t coordinates = 1;

  std::int32_t at(std::int32_t lane) const { return (first + lane) % coordinates; }
};

// Owners of the logical pages [first_page, first_page + pages). Blocks are whole segments of 256 positions
// where those come out even or are many, whole pages otherwise; with fewer pages than blocks some lanes get
// none.
std::vector<std::int32_t> deal_pages(ContextPartition partition, const ContextLanes& lanes,
                                     std::int32_t first_page, std::int32_t pages);

}  // namespace shoal
