#include "kernels/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace shoal::kernels {
namespace {

Status positive(double value, const char* name) {
  if (std::isfinite(value) && value > 0) return {};
  return {ErrorCode::kInvalidArgument,
          fmt::format("rope: {} is {}, which is not a positive number", name, value)};
}

Status check(const RopeSpec& spec) {
  if (spec.rotary_dim < 0 || spec.rotary_dim % 2 != 0) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("rope: {} rotary dimensions, which is not an even number", spec.rotary_dim)};
  }
  const auto pairs = static_cast<std::size_t>(spec.rotary_dim / 2);
  if (!spec.frequency_divisors.empty() && spec.frequency_divisors.size() != pairs) {
    return {ErrorCode::kInvalidArgument, fmt::format("rope: {} frequency divisors for {} pairs of dimensions",
                                                     spec.frequency_divisors.size(), pairs)};
  }
  for (const float divisor : spec.frequency_divisors) {
    SHOAL_TRY(positive(static_cast<double>(divisor), "a frequency divisor"));
  }
  SHOAL_TRY(positive(spec.base, "the base"));
  SHOAL_TRY(positive(spec.attention_factor, "the attention factor"));
  if (spec.scaling == RopeScaling::kNone) return {};
  SHOAL_TRY(positive(spec.factor, "the scaling factor"));
  if (spec.scaling == RopeScaling::kLinear) return {};
  SHOAL_TRY(positive(spec.original_context, "the original context"));
  if (spec.scaling == RopeScaling::kYarn) {
    SHOAL_TRY(positive(spec.beta_fast, "beta_fast"));
    SHOAL_TRY(positive(spec.beta_slow, "beta_slow"));
    if (!(spec.base > 1)) {
      return {ErrorCode::kInvalidArgument, fmt::format("rope: YaRN needs a base above 1, not {}", spec.base)};
    }
    if (!(spec.extrapolation >= 0 && spec.extrapolation <= 1)) {
      return {ErrorCode::kInvalidArgument,
              fmt::format("rope: YaRN's extrapolation is {}, outside 0 to 1", spec.extrapolation)};
    }
    return {};
  }
  SHOAL_TRY(positive(spec.low_freq_factor, "low_freq_factor"));
  SHOAL_TRY(positive(spec.high_freq_factor, "high_freq_factor"));
  if (!(spec.high_freq_factor > spec.low_freq_factor)) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("rope: high_freq_factor {} is not above low_freq_factor {}", spec.high_freq_factor,
                        spec.low_freq_factor)};
  }
  return {};
}

// Index of the pair that turns `turns` times over the original context.
double pair_turning(const RopeSpec& spec, double turns) {
  return spec.rotary_dim * std::log(spec.original_context / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(spec.base));
}

// YaRN (Peng et al. 2023, "NTK-by-parts"), the ramp over pair indices between whole ones.
double yarn(const RopeSpec& spec, std::int32_t pair, double frequency) {
  const double low = std::max(0.0, std::floor(pair_turning(spec, spec.beta_fast)));
  const double high = std::min(spec.rotary_dim - 1.0, std::ceil(pair_turning(spec, spec.beta_slow)));
  const double ramp = std::clamp((pair - low) / std::max(0.001, high - low), 0.0, 1.0);
  const double kept = (1 - ramp) * spec.extrapolation;
  return frequency / spec.factor * (1 - kept) + frequency * kept;
}

double llama3(const RopeSpec& spec, double frequency) {
  const double turns = spec.original_context * frequency / (2 * std::numbers::pi);  // context / wavelength
  if (turns < spec.low_freq_factor) return frequency / spec.factor;
  if (turns > spec.high_freq_factor) return frequency;
  const double kept = (turns - spec.low_freq_factor) / (spec.high_freq_factor - spec.low_freq_factor);
  return (1 - kept) * frequency / spec.factor + kept * frequency;
}

}  // namespace

Expected<Rope> make_rope(const RopeSpec& spec) {
  if (Status status = check(spec); !status.ok()) return status;
  Rope rope;
  rope.adjacent_pairs = spec.adjacent_pairs;
  rope.magnitude = static_cast<float>(spec.attention_factor);
  if (spec.scaling == RopeScaling::kYarn && spec.extrapolation > 0) {
    rope.magnitude = static_cast<float>(spec.attention_factor * (1 + 0.1 * std::log(spec.factor)));
  }
  rope.inverse_frequency.reserve(static_cast<std::size_t>(spec.rotary_dim / 2));
  for (std::int32_t pair = 0; pair < spec.rotary_dim / 2; ++pair) {
    double frequency = std::pow(spec.base, -2.0 * pair / spec.rotary_dim);
    if (!spec.frequency_divisors.empty()) {
      frequency /= static_cast<double>(spec.frequency_divisors[static_cast<std::size_t>(pair)]);
    }
    switch (spec.scaling) {
      case RopeScaling::kNone:
        break;
      case RopeScaling::kLinear:
        frequency /= spec.factor;
        break;
      case RopeScaling::kYarn:
        frequency = yarn(spec, pair, frequency);
        break;
      case RopeScaling::kLlama3:
        frequency = llama3(spec, frequency);
        break;
    }
    rope.inverse_frequency.push_back(static_cast<float>(frequency));
  }
  return rope;
}

}  // namespace shoal::kernels
