// What an instruction set provides for choosing a token; sampling_math.cc folds and decides.
//
// Thread-safety: the tables are constant; functions touch only what they are given.

#pragma once

#include <cstdint>

#include "core/ids.h"
#include "kernels/isa.h"

namespace shoal::kernels {

// A token and its perturbed logit.
struct Draw {
  TokenId id = 0;
  float value = 0;
};

// The state from which noise of one (seed, choice, output index) starts: bits of a token are noise_at.
std::uint64_t noise_key(std::uint64_t seed, std::uint32_t choice, std::uint64_t output_index);
std::uint64_t noise_at(std::uint64_t key, TokenId token);
// Gumbel noise from 64 bits.
float gumbel_from(std::uint64_t bits);

struct SamplingKernels {
  // Largest of n values times factor, NaN dropped; -inf if none is left.
  float (*maximum)(const float* x, std::int64_t n, float factor);
  // sum(e^(x * factor - base)) in a fixed order, NaN dropped.
  float (*exp_sum)(const float* x, std::int64_t n, float factor, float base);
  // First index whose value equals `wanted`, or n.
  std::int64_t (*find)(const float* x, std::int64_t n, float wanted);
  // The best of `best` and all tokens' x * factor + gumbel. best.value is finite.
  Draw (*best_draw)(const float* x, std::int64_t n, float factor, std::uint64_t key, Draw best);
};

const SamplingKernels& sampling_kernels(Isa isa);

extern const SamplingKernels kSamplingScalar;
extern const SamplingKernels kSamplingAvx2;
extern const SamplingKernels kSamplingAvx512;

}  // namespace shoal::kernels
