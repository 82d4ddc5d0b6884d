#include "engine/rank_carrier.h"

#include <algorithm>

#include "comm/shm_carrier.h"

namespace shoal::engine {
namespace {

constexpr std::uint64_t kLeastRing = std::uint64_t{1} << 20;
// Rows of a step: a whole chunk of prompts and as many sequences as may decode beside it in most steps. A
// larger step only makes its stage wait.
constexpr std::int64_t kRowsOfAStep = 1024 + 64;

}  // namespace

std::uint64_t ring_bytes_for(const Layout& layout, std::int64_t hidden) {
  if (layout.degrees().pp == 1) return kLeastRing;
  const auto step = static_cast<std::uint64_t>(kRowsOfAStep * hidden) * sizeof(float);
  return std::max<std::uint64_t>(kLeastRing, comm::ShmLayout::round_up(step, comm::kShmPage));
}

comm::ShmLayout shm_layout_for(const Layout& layout, std::int32_t lanes, std::uint64_t ring_bytes) {
  comm::ShmLayout shm;
  shm.ranks = layout.ranks();
  shm.lanes = lanes;
  shm.ring_bytes = ring_bytes;
  if (layout.degrees().tp > 1) {
    for (std::int32_t rank = 0; rank < layout.ranks(); rank += layout.degrees().tp)
      shm.groups.push_back(layout.group(GroupKind::kAttentionTensor, rank).ranks);
  }
  return shm;
}

std::unique_ptr<comm::Carrier> shm_carrier_for(std::shared_ptr<comm::ShmSegment> segment, std::int32_t rank,
                                               bool spin, ThreadPool& pool) {
  comm::ShmCarrier::Options options;
  // With a core for each nobody else wants it, and who sleeps is some 100 us late at every sum of a chunk:
  // 40,000 pauses are about 2 ms, by which ranks of unlike cores drift apart in a layer of 512 rows.
  options.patience.pauses = spin ? 40'000 : 0;
  options.pool = segment->layout().lanes > 1 ? &pool : nullptr;
  return std::make_unique<comm::ShmCarrier>(std::move(segment), rank, options);
}

}  // namespace shoal::engine
