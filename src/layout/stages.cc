#include "layout/stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace shoal {
namespace {

constexpr std::array<std::pair<std::string_view, Balance>, 3> kBalances = {
    {{"prefill", Balance::kPrefill}, {"decode", Balance::kDecode}, {"mix", Balance::kMix}}};

// How good a split of some layers is: its slowest stage first, then the sum of squares, least where even.
using Quality = std::pair<double, double>;

}  // namespace

std::optional<Balance> balance_from_name(std::string_view name) {
  for (const auto& [known, balance] : kBalances) {
    if (known == name) return balance;
  }
  return std::nullopt;
}

std::string_view balance_name(Balance balance) {
  for (const auto& [name, known] : kBalances) {
    if (known == balance) return name;
  }
  return "";
}

// best[s][n]: of the first n layers in s + 1 stages. 200 layers in 64 stages are a million steps.
Expected<std::vector<std::int32_t>> balanced_stages(std::span<const double> layer_costs, double head_cost,
                                                    std::int32_t stages) {
  const auto layers = static_cast<std::int32_t>(layer_costs.size());
  if (stages < 1 || stages > layers)
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("pp {}: the model has {} layers, and every stage needs one; the nearest degree "
                              "is pp {}",
                              stages, layers, std::clamp(stages, 1, layers)));
  const auto width = static_cast<std::size_t>(layers) + 1;
  std::vector<double> before(width);  // cost of the first n layers
  for (std::size_t n = 1; n < width; ++n) before[n] = before[n - 1] + layer_costs[n - 1];
  const auto cost = [&](std::size_t begin, std::size_t end, std::int32_t stage) {
    return before[end] - before[begin] + (stage + 1 == stages ? head_cost : 0);
  };

  constexpr double kNone = std::numeric_limits<double>::infinity();
  std::vector<std::vector<Quality>> best(static_cast<std::size_t>(stages),
                                         std::vector<Quality>(width, {kNone, kNone}));
  std::vector<std::vector<std::size_t>> border(best.size(), std::vector<std::size_t>(width));
  for (std::size_t n = 1; n < width; ++n) {
    const double all = cost(0, n, 0);
    best[0][n] = {all, all * all};
  }
  for (std::int32_t stage = 1; stage < stages; ++stage) {
    const auto s = static_cast<std::size_t>(stage);
    for (std::size_t n = s + 1; n < width; ++n) {
      for (std::size_t begin = s; begin < n; ++begin) {
        const double here = cost(begin, n, stage);
        const Quality quality{std::max(best[s - 1][begin].first, here),
                              best[s - 1][begin].second + here * here};
        if (quality >= best[s][n]) continue;
        best[s][n] = quality;
        border[s][n] = begin;
      }
    }
  }
  std::vector<std::int32_t> result(best.size());
  std::size_t end = width - 1;
  for (std::size_t s = best.size(); s-- > 0; end = border[s][end])
    result[s] = static_cast<std::int32_t>(end - border[s][end]);
  return result;
}

std::vector<double> stage_costs(std::span<const double> layer_costs, double head_cost,
                                const std::vector<std::int32_t>& stage_layers) {
  std::vector<double> costs;
  for (std::size_t stage = 0; stage < stage_layers.size(); ++stage) {
    const LayerRange range = layers_of_stage(stage_layers, static_cast<std::int32_t>(stage));
    double cost = stage + 1 == stage_layers.size() ? head_cost : 0;
    for (std::int32_t layer = range.begin; layer < range.end; ++layer)
      cost += layer_costs[static_cast<std::size_t>(layer)];
    costs.push_back(cost);
  }
  return costs;
}

LayerRange layers_of_stage(const std::vector<std::int32_t>& stage_layers, std::int32_t stage) {
  LayerRange range;
  for (std::int32_t i = 0; i < stage; ++i) range.begin += stage_layers[static_cast<std::size_t>(i)];
  range.end = range.begin + stage_layers[static_cast<std::size_t>(stage)];
  return range;
}

}  // namespace shoal
