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

// Of one segment: its largest scaled logit and sum(exp(logit - that)).
struct SegmentMass {
  float maximum = 0;
  double sum = 0;
};
constexpr std::int64_t vocabulary_segments(std::int64_t ids) {
  return (ids + kVocabularySegment - 1) / kVocabularySegment;
}
// Fills one for each segment of the logits, which begin at a segment's border.
void segment_masses(const Context& context, std::span<const float> logits, float inverse_temperature,
                    std::span<SegmentMass> masses);
// Their log-sum-exp, in order.
float fold_masses(std::span<const SegmentMass> masses);

// log(sum(exp(logits * inverse_temperature))), folded as above. Minus infinity for an empty or all -inf row.
float log_sum_exp(const Context& context, std::span<const float> logits, float inverse_temperature = 1);

// The largest logit and its id, lowest id on ties, where the logits are those of the ids from `first` on; NaN
// and an empty row give minus infinity and `first`.
Candidate best_candidate(const Context& context, std::span<const float> logits, TokenId first);
// The same of logit * inverse_temperature + gumbel: a part's draw. The best of all parts' is the row's.
Candidate best_draw(const Context& context, std::span<const float> logits, TokenId first,
                    float inverse_temperature, std::uint64_t seed, std::uint32_t choice,
                    std::uint64_t output_index);

// The id of the largest logit, lowest id on ties; 0 for an empty row.
TokenId arg_max(const Context& context, std::span<const float> logits);

// Whether a comes before b: the larger logit, the lower id on ties.
inline bool better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

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
