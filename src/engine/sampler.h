// Turns the logits of one row into a token: penalties, bias, restrictions, then a draw that only the
// request's own counters decide.
//
// Order: penalties on the model's logits (repetition for prompt and output, frequency and presence for
// output), logit_bias, stop ids forbidden under min_tokens, temperature, min_p, top_k, top_p (on what min_p
// and top_k left, renormalised), Gumbel-max over the rest. Temperature below 1e-5 takes the largest logit.
// Log-probabilities are those of the model's own distribution, before any of this.
//
// Thread-safety: none; one Sampler belongs to one sequence. Different ones may run at once.
// Invariants:
//   1. The token depends on the logits, the parameters, the history and the output index alone.
//   2. logits are as they were when sample() returns.

#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/context.h"
#include "kernels/sampling_math.h"
#include "layout/step_plan.h"

namespace shoal::engine {

// Log-probabilities of a row: of one id, and of the k best (k < 0: none). Raw: nothing applied.
struct RowLogprobs {
  float logprob = 0;
  std::vector<TokenLogprob> top;
};
RowLogprobs row_logprobs(const kernels::Context& context, std::span<const float> logits, TokenId id,
                         std::int32_t k);

class Sampler {
 public:
  // prompt, output: as in SequenceOpen; output continues an answer that was begun.
  Sampler(SamplingParams params, std::span<const TokenId> prompt, std::span<const TokenId> output);

  // logits: [vocabulary], changed meanwhile and restored. The token counts as output from now on.
  // `sequence` of the result is left to the caller.
  SampledToken sample(const kernels::Context& context, std::span<float> logits);

  const SamplingParams& params() const { return params_; }
  std::uint64_t output_index() const { return outputs_; }

 private:
  struct Seen {
    bool in_prompt = false;
    std::int32_t output = 0;
  };

  void adjust(std::span<float> logits);
  void set(std::span<float> logits, TokenId id, float logit);
  void restore(std::span<float> logits);
  TokenId choose(const kernels::Context& context, std::span<const float> logits) const;
  TokenId draw(std::span<const kernels::Candidate> candidates, float inverse_temperature) const;

  SamplingParams params_;
  std::uint64_t outputs_ = 0;
  std::unordered_map<TokenId, Seen> seen_;  // only where a penalty needs it
  std::vector<std::pair<TokenId, float>> changed_;
};

}  // namespace shoal::engine
