// KV groups: the layers that share one page table because they keep the same positions.
//
// Thread-safety: values.
// Invariants: every attention layer is in exactly one group; `layers` ascend.

#pragma once

#include <cstdint>
#include <vector>

#include "core/ids.h"

namespace shoal {

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
