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

#include <algorithm>
#include <cstdint>
#include <optional>
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

  // The same in pieces, for a vocabulary that is cut (shard_sampling.h). logits: of the ids from `first` on.
  //
  // First of all, once: a top_k of the whole vocabulary is none.
  void allow_for(std::int64_t vocabulary) {
    if (params_.top_k >= vocabulary) params_.top_k = 0;
  }
  // Penalties, bias and what is forbidden go on, until restore().
  void adjust(std::span<float> logits, TokenId first);
  void restore(std::span<float> logits);
  // Whether the best ids decide (top_k, top_p, min_p); else the best of the parts' best().
  bool ranks() const { return !greedy() && (params_.top_k > 0 || params_.top_p < 1 || params_.min_p > 0); }
  kernels::Candidate best(const kernels::Context& context, std::span<const float> logits,
                          TokenId first) const;
  // Best candidates of all to look at first, of at most most_ranked(); eight times as many where they do not
  // suffice.
  std::int64_t first_ranked(std::int64_t vocabulary) const;
  std::int64_t most_ranked(std::int64_t vocabulary) const;
  static std::int64_t next_ranked(std::int64_t k, std::int64_t most) { return std::min(8 * k, most); }
  // Whether choose() wants the mass of the whole vocabulary: log-sum-exp of logits * inverse_temperature().
  bool wants_mass() const { return ranks() && params_.top_p < 1 && params_.top_k == 0 && params_.min_p <= 0; }
  float inverse_temperature() const { return 1 / params_.temperature; }
  // ranked: the best of the vocabulary, best first; all: there are no more that may be chosen. Nothing where
  // it takes more of them.
  std::optional<TokenId> choose(std::span<const kernels::Candidate> ranked, bool all, float mass) const;
  // A token of this sequence has been chosen, somewhere; and which, where a penalty counts it.
  void advance() { ++outputs_; }
  void note(TokenId id) {
    if (params_.needs_history()) ++seen_[id].output;
  }

  const SamplingParams& params() const { return params_; }
  std::uint64_t output_index() const { return outputs_; }

 private:
  struct Seen {
    bool in_prompt = false;
    std::int32_t output = 0;
  };

  bool greedy() const;
  void set(std::span<float> logits, std::int64_t at, float logit);
  TokenId choose(const kernels::Context& context, std::span<const float> logits) const;
  TokenId draw(std::span<const kernels::Candidate> candidates, float inverse_temperature) const;

  SamplingParams params_;
  std::uint64_t outputs_ = 0;
  std::unordered_map<TokenId, Seen> seen_;               // only where a penalty needs it
  std::vector<std::pair<std::int64_t, float>> changed_;  // index in the logits at hand, and what was there
};

}  // namespace shoal::engine
