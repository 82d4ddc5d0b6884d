// Which layers each pipeline stage holds.
//
// Thread-safety: pure functions.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/expected.h"

namespace shoal {

// What the stages are to be equally long in: a worker's role.
enum class Balance : std::uint8_t { kPrefill, kDecode, kMix };
std::optional<Balance> balance_from_name(std::string_view name);  // "prefill", "decode", "mix"
std::string_view balance_name(Balance balance);

// Layers of each stage, in order, so that the slowest stage is as fast as can be, and of such splits the most
// even one. layer_costs: of each layer, in any unit; head_cost: of the head, which belongs to the last stage.
// Fails with kInvalidArgument where there are fewer layers than stages, naming the nearest degree.
Expected<std::vector<std::int32_t>> balanced_stages(std::span<const double> layer_costs, double head_cost,
                                                    std::int32_t stages);

// Of each stage of such a split.
std::vector<double> stage_costs(std::span<const double> layer_costs, double head_cost,
                                const std::vector<std::int32_t>& stage_layers);

// Half open; stage_layers: as above.
struct LayerRange {
  std::int32_t begin = 0;
  std::int32_t end = 0;
};
LayerRange layers_of_stage(const std::vector<std::int32_t>& stage_layers, std::int32_t stage);

}  // namespace shoal
