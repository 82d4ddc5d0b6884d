// The arithmetic of choosing a token: folded log-sum-exp, ranked candidates, counter-based noise.
//
// Thread-safety: pure functions; they run on the calling thread.
// Invariants:
//   1. Sums over the vocabulary run inside fixed segments of kVocabularySegment ids in id order, segments
//      folded left to right: a vocabulary cut over ranks at segment borders gives the same bits.
//   2. Ties go to the lowest id.
//   3. Noise is a hash of (seed, choice, output index, token id): no state, so a continued answer goes on as
//      it would have. NaN logits count as minus infinity.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"
#include "kernels/context.h"

namespace shoal::kernels {

// 1,024 f32 = 4 KiB; the widest vocabularies (256k) have 256 of them.
inline constexpr std::int64_t kVocabularySegment = 1024;

struct Candidate {
  TokenId id = 0;
  float logit = 0;
};

// log(sum(exp(logits * inverse_temperature))), folded as above. Minus infinity for an empty or all -inf row.
float log_sum_exp(const Context& context, std::span<const float> logits, float inverse_temperature = 1);

// The id of the largest logit, lowest id on ties; 0 for an empty row.
TokenId arg_max(const Context& context, std::span<const float> logits);

// The k best, best first; fewer where the vocabulary is smaller.
std::vector<Candidate> top_candidates(std::span<const float> logits, std::int64_t k);

// 64 well-mixed bits of the four counters.
std::uint64_t noise_bits(std::uint64_t seed, std::uint32_t choice, std::uint64_t output_index, TokenId token);
// Gumbel noise, -log(-log(u)), u uniform in (0, 1) from noise_bits.
float gumbel(std::uint64_t seed, std::uint32_t choice, std::uint64_t output_index, TokenId token);

// arg max over all ids of logit * inverse_temperature + gumbel: a draw from the softmax.
TokenId gumbel_max(const Context& context, std::span<const float> logits, float inverse_temperature,
                   std::uint64_t seed, std::uint32_t choice, std::uint64_t output_index);

}  // namespace shoal::kernels
