#include "kernels/sampling_math.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/noise_inl.h"
#include "kernels/sampling_math_kernels.h"

namespace shoal::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Candidate candidate(std::span<const float> logits, std::size_t id) {
  const float logit = logits[id];
  return {static_cast<TokenId>(id), std::isnan(logit) ? -kInfinity : logit};
}

// Logits looked at together while searching for candidates: one branch for all, the comparisons vectorised.
constexpr std::size_t kSkip = 16;

bool none_above(const float* logits, float bound) {
  int above = 0;
  for (std::size_t j = 0; j < kSkip; ++j) above |= logits[j] > bound ? 1 : 0;
  return above == 0;
}

}  // namespace

const SamplingKernels& sampling_kernels(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kScalar:
      return kSamplingScalar;
    case Isa::kAvx2:
      return kSamplingAvx2;
    case Isa::kAvx512:
    case Isa::kAmx:
      return kSamplingAvx512;
  }
#endif
  (void)isa;
  return kSamplingScalar;
}

void segment_masses(const Context& context, std::span<const float> logits, float inverse_temperature,
                    std::span<SegmentMass> masses) {
  const SamplingKernels& kernels = sampling_kernels(context.isa);
  const auto n = static_cast<std::int64_t>(logits.size());
  for (std::int64_t i = 0; i < n; i += kVocabularySegment) {
    const std::int64_t length = std::min(kVocabularySegment, n - i);
    SegmentMass& mass = masses[static_cast<std::size_t>(i / kVocabularySegment)];
    mass.maximum = kernels.maximum(logits.data() + i, length, inverse_temperature);
    const bool finite = mass.maximum != kInfinity && mass.maximum != -kInfinity;
    mass.sum = finite ? static_cast<double>(
                            kernels.exp_sum(logits.data() + i, length, inverse_temperature, mass.maximum))
                      : 0;
  }
}

float fold_masses(std::span<const SegmentMass> masses) {
  float best = -kInfinity;
  double sum = 0;
  for (const SegmentMass& mass : masses) {
    const float m = mass.maximum;
    if (m == kInfinity) return kInfinity;
    if (m == -kInfinity) continue;
    const float joint = std::max(best, m);
    sum = sum * std::exp(static_cast<double>(best) - static_cast<double>(joint)) +
          mass.sum * std::exp(static_cast<double>(m) - static_cast<double>(joint));
    best = joint;
  }
  return best == -kInfinity ? best : static_cast<float>(static_cast<double>(best) + std::log(sum));
}

float log_sum_exp(const Context& context, std::span<const float> logits, float inverse_temperature) {
  std::vector<SegmentMass> masses(
      static_cast<std::size_t>(vocabulary_segments(static_cast<std::int64_t>(logits.size()))));
  segment_masses(context, logits, inverse_temperature, masses);
  return fold_masses(masses);
}

Candidate best_candidate(const Context& context, std::span<const float> logits, TokenId first) {
  const SamplingKernels& kernels = sampling_kernels(context.isa);
  const auto n = static_cast<std::int64_t>(logits.size());
  const float best = kernels.maximum(logits.data(), n, 1);
  if (best == -kInfinity) return {first, best};
  return {static_cast<TokenId>(first + kernels.find(logits.data(), n, best)), best};
}

TokenId arg_max(const Context& context, std::span<const float> logits) {
  return best_candidate(context, logits, 0).id;
}

std::vector<Candidate> top_candidates(std::span<const float> logits, std::int64_t k) {
  std::vector<Candidate> best;
  const std::size_t wanted =
      static_cast<std::size_t>(std::clamp<std::int64_t>(k, 0, static_cast<std::int64_t>(logits.size())));
  if (wanted == 0) return best;
  if (wanted > logits.size() / 8) {
    best.reserve(logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i) best.push_back(candidate(logits, i));
    std::nth_element(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(wanted - 1), best.end(),
                     better);
    best.resize(wanted);
    std::sort(best.begin(), best.end(), better);
    return best;
  }
  // A heap with the worst of the best on top: most tokens cost one comparison. Ids ascend, so an equal logit
  // never replaces; NaN compares false.
  best.reserve(wanted);
  std::size_t i = 0;
  for (; i < wanted; ++i) best.push_back(candidate(logits, i));
  std::make_heap(best.begin(), best.end(), better);
  while (i < logits.size()) {
    if (i + kSkip <= logits.size() && none_above(logits.data() + i, best.front().logit)) {
      i += kSkip;
      continue;
    }
    for (const std::size_t end = std::min(i + kSkip, logits.size()); i < end; ++i) {
      if (!(logits[i] > best.front().logit)) continue;
      std::pop_heap(best.begin(), best.end(), better);
      best.back() = candidate(logits, i);
      std::push_heap(best.begin(), best.end(), better);
    }
  }
  std::sort_heap(best.begin(), best.end(), better);
  return best;
}

std::uint64_t noise_key(std::uint64_t seed, std::uint32_t choice, std::uint64_t output_index) {
  std::uint64_t key = mix_noise(seed + kNoiseStep);
  key = mix_noise((key ^ choice) + kNoiseStep);
  return mix_noise((key ^ output_index) + kNoiseStep);
}

std::uint64_t noise_at(std::uint64_t key, TokenId token) { return noise_of(key, token); }

// 52 bits and a half: u lies in [2^-53, 1 - 2^-53], both ends exact in double.
float gumbel_from(std::uint64_t bits) {
  const double u = (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
  return static_cast<float>(-std::log(-std::log(u)));
}

std::uint64_t noise_bits(std::uint64_t seed, std::uint32_t choice, std::uint64_t output_index,
                         TokenId token) {
  return noise_at(noise_key(seed, choice, output_index), token);
}

float gumbel(std::uint64_t seed, std::uint32_t choice, std::uint64_t output_index, TokenId token) {
  return gumbel_from(noise_bits(seed, choice, output_index, token));
}

Candidate best_draw(const Context& context, std::span<const float> logits, TokenId first,
                    float inverse_temperature, std::uint64_t seed, std::uint32_t choice,
                    std::uint64_t output_index) {
  const SamplingKernels& kernels = sampling_kernels(context.isa);
  // The likeliest token first: few others then stand a chance.
  const Candidate likeliest = best_candidate(context, logits, 0);
  if (logits.empty()) return {first, likeliest.logit};
  // Noise counts tokens in equal steps of its key: this is the key of the token `first` as if it were 0.
  const std::uint64_t key =
      noise_key(seed, choice, output_index) + static_cast<std::uint64_t>(first) * kNoiseStep;
  const float top = logits[static_cast<std::size_t>(likeliest.id)] * inverse_temperature;
  const float value = top + gumbel_from(noise_at(key, likeliest.id));
  if (!std::isfinite(value)) return {first + likeliest.id, std::isnan(value) ? -kInfinity : value};
  const Draw best = kernels.best_draw(logits.data(), static_cast<std::int64_t>(logits.size()),
                                      inverse_temperature, key, {likeliest.id, value});
  return {first + best.id, best.value};
}

TokenId gumbel_max(const Context& context, std::span<const float> logits, float inverse_temperature,
                   std::uint64_t seed, std::uint32_t choice, std::uint64_t output_index) {
  return best_draw(context, logits, 0, inverse_temperature, seed, choice, output_index).id;
}

}  // namespace shoal::kernels
