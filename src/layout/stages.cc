#include "layout/stages.h"

#include <fmt/format.h>

#include <algorithm>

namespace shoal {

Expected<std::vector<std::int32_t>> balanced_stages(std::int32_t layers, std::int32_t stages,
                                                    double head_layers) {
  if (stages < 1 || stages > layers)
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("pp {}: the model has {} layers, and every stage needs one; the nearest degree "
                              "is pp {}",
                              stages, layers, std::clamp(stages, 1, layers)));
  const std::int32_t others = stages - 1;
  // How many the last stage takes: the slowest stage sets the pace.
  std::int32_t last = layers;
  double best = layers + head_layers;
  for (std::int32_t n = 1; others > 0 && n <= layers - others; ++n) {
    const double slowest = std::max<double>((layers - n + others - 1) / others, n + head_layers);
    // Of equals the one with more in the last stage: the others' surplus is smaller.
    if (last == layers || slowest <= best) {
      best = slowest;
      last = n;
    }
  }
  std::vector<std::int32_t> result;
  for (std::int32_t stage = 0; stage < others; ++stage)
    result.push_back((layers - last) / others + (stage < (layers - last) % others ? 1 : 0));
  result.push_back(last);
  return result;
}

LayerRange layers_of_stage(const std::vector<std::int32_t>& stage_layers, std::int32_t stage) {
  LayerRange range;
  for (std::int32_t i = 0; i < stage; ++i) range.begin += stage_layers[static_cast<std::size_t>(i)];
  range.end = range.begin + stage_layers[static_cast<std::size_t>(stage)];
  return range;
}

}  // namespace shoal
