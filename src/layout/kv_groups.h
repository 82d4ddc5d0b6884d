// KV groups: the layers that share one page table because they keep the same positions.
//
// Thread-safety: values.
// Invariants: every attention layer is in exactly one group; `layers` ascend.

#pragma once

#include <cstdint>
#include <vector>

#include "core/ids.h"

namespace shoal {

// Tokens of a page: the unit in which KV is allocated, cached, owned and moved.
inline constexpr int kPageTokens = 32;
// Positions whose pages fold together before segments fold with each other (docs/execution.md S3).
inline constexpr std::int32_t kAttentionSegment = 256;
inline constexpr std::int32_t kSegmentPages = kAttentionSegment / kPageTokens;

// First logical page that a query at `position` can see; window 0 sees all.
constexpr std::int32_t first_visible_page(std::int64_t position, std::int32_t window) {
  if (window <= 0 || position < window) return 0;
  return static_cast<std::int32_t>((position - window + 1) / kPageTokens);
}

struct KvGroup {
  KvGroupId id;
  // Layers of the model, by index; a rank's pool holds those of its stage.
  std::vector<std::int32_t> layers;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  // Positions a query sees, itself included; 0: all. Pages wholly behind the window are given back.
  std::int32_t window = 0;
};

}  // namespace shoal
