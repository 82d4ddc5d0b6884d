// Rotary position embedding from a model's plain numbers: base, scaling and what the scaling needs.
//
// Thread-safety: pure functions.

#pragma once

#include <cstdint>
#include <vector>

#include "core/expected.h"
#include "kernels/elementwise.h"

namespace shoal::kernels {

enum class RopeScaling : std::uint8_t { kNone, kLinear, kYarn, kLlama3 };

struct RopeSpec {
  double base = 10000;
  std::int32_t rotary_dim = 0;  // even; dimensions of a head that turn
  bool adjacent_pairs = true;

  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;            // how far beyond the original context positions reach
  double original_context = 0;  // kYarn, kLlama3: tokens

  // kYarn: pairs that turn more than beta_fast times over the original context keep their frequency, those
  // below beta_slow are interpolated, with a ramp between.
  double beta_fast = 32;
  double beta_slow = 1;
  // kYarn: part of the interpolation that the ramp does not touch: 1 in YaRN models (llama.cpp's ext_factor).
  double extrapolation = 1;
  // Multiplies the magnitude. kYarn: on top of 1 + 0.1 ln(factor).
  double attention_factor = 1;

  // kLlama3: wavelengths over original_context / low_freq_factor are interpolated, those under
  // original_context / high_freq_factor kept.
  double low_freq_factor = 1;
  double high_freq_factor = 4;

  // One divisor a pair (GGUF's rope_freqs.weight), applied to the base frequencies before any scaling; empty:
  // none.
  std::vector<float> frequency_divisors = {};
};

// Fails with kInvalidArgument, naming the number that cannot be used.
Expected<Rope> make_rope(const RopeSpec& spec);

}  // namespace shoal::kernels
