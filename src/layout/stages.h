// Which layers each pipeline stage holds.
//
// Thread-safety: pure functions.

#pragma once

#include <cstdint>
#include <vector>

#include "core/expected.h"

namespace shoal {

// Layers of each stage, in order: as even as their cost allows, where the head costs as much as head_layers
// layers and belongs to the last. Fails with kInvalidArgument where there are fewer layers than stages,
// naming the nearest degree.
Expected<std::vector<std::int32_t>> balanced_stages(std::int32_t layers, std::int32_t stages,
                                                    double head_layers);

// Half open; stage_layers: as above.
struct LayerRange {
  std::int32_t begin = 0;
  std::int32_t end = 0;
};
LayerRange layers_of_stage(const std::vector<std::int32_t>& stage_layers, std::int32_t stage);

}  // namespace shoal
