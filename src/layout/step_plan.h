// The step plan: the head's numbered, complete instruction to all ranks for one forward pass, and what the
// sampling rank answers.
//
// Plans are delta-coded: a sequence is opened once with what never changes (sampling parameters, prompt
// tokens known so far), later plans name its slot, new pages and new tokens. A rank that has applied plans
// 1..n knows everything it needs for n + 1; it decides nothing by itself (docs/execution.md).
//
// Thread-safety: values, passed by move.
// Invariants:
//   1. Plan numbers are consecutive inside an epoch.
//   2. Order inside a plan: copies, closes, opens, page changes, then the sub-batches' work. Copies are done
//      whatever becomes of the rest.
//   3. A sequence slot is reused only after a plan that closed it.
//   4. There is one sub-batch for every (cp, dp) coordinate, possibly empty. Of a prompt's tokens each item
//      lies with the coordinate that owns its pages; a decoded token lies with its sequence's home.
//   5. Whatever a plan's work reads or writes lies with the coordinates that the plan is for.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "layout/coordinate_set.h"

namespace shoal {

// A page as it is named everywhere: which pool, which slot, which time the slot was given out.
struct PageId {
  // Index over (coordinate, KV group), groups running fastest: the page lies on the ranks of that coordinate.
  std::int32_t pool = 0;
  std::int32_t slot = 0;
  std::uint32_t generation = 0;
  friend bool operator==(const PageId&, const PageId&) = default;
};

// How the sampling rank turns logits into a token. Semantics and ranges as in docs/api.md.
struct SamplingParams {
  float temperature = 1;   // 0: greedy
  std::int32_t top_k = 0;  // 0: all
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::uint64_t seed = 0;    // always set: drawn by the head where the client gave none
  std::uint32_t choice = 0;  // index among the request's n choices
  // While fewer tokens than this are out, stop_ids cannot be chosen.
  std::int32_t min_tokens = 0;
  std::vector<TokenId> stop_ids;  // used only to forbid them under min_tokens; stopping is the head's
  // -1: none; k >= 0: the chosen token's log-probability and the k best.
  std::int32_t logprobs = -1;

  bool needs_history() const {
    return repetition_penalty != 1 || frequency_penalty != 0 || presence_penalty != 0;
  }
};

struct SequenceOpen {
  SequenceSlot sequence;
  SamplingParams sampling;
  // The prompt, where a penalty or prompt log-probabilities need it, and the output so far (after
  // preemption): it counts for penalties, min_tokens and the random numbers, and its last token is the one
  // sampled last.
  std::vector<TokenId> prompt;
  std::vector<TokenId> output;
  // Where its prompt's KV goes to another worker: the room, else -1, and how long the prompt is.
  std::int64_t room = -1;
  std::int32_t room_tokens = 0;
};

struct PageGrant {
  SequenceSlot sequence;
  KvGroupId group;
  std::int32_t logical_page = 0;  // index in the sequence's page table of that group
  PageId page;
};

// The sequence no longer reads logical pages below this one: the sliding window has moved past them.
struct PageRelease {
  SequenceSlot sequence;
  KvGroupId group;
  std::int32_t first_kept = 0;
};

// A page goes from its pool to a place in its ranks' offload buffers, or comes from there.
struct PageCopy {
  PageId page;
  std::int32_t place = 0;
  bool out = false;  // to the place
};

struct WorkItem {
  SequenceSlot sequence;
  std::int32_t start = 0;  // position of the first token
  // The tokens to compute. Empty: one token, the one sampled last for this sequence (the head may not know it
  // yet).
  std::vector<TokenId> tokens;
  // Sample after the last token of this item.
  bool sample = false;
  // Also the log-probability of the prompt token after each of `tokens` (echo, scoring), so that no logits
  // need to outlive a pass: k best as in SamplingParams::logprobs; -1 none. The first token of a prompt has
  // none.
  std::int32_t prompt_logprobs = -1;
  // How these tokens see pages of other coordinates: queries go to their owners and partial results come
  // back, or the pages come here. In groups without a window; in those the pages come where there are many.
  bool pass_queries = false;

  std::int32_t count() const { return tokens.empty() ? 1 : static_cast<std::int32_t>(tokens.size()); }
};

struct SubBatch {
  std::vector<WorkItem> items;
};

struct StepPlan {
  PlanNumber number;
  Epoch epoch;
  // Those that compute it together and answer it; empty: all. The others apply what changes in the table.
  CoordinateSet coordinates;
  std::vector<PageCopy> copies;  // in this order: a page or place may appear again
  std::vector<SequenceSlot> closes;
  std::vector<SequenceOpen> opens;
  std::vector<PageGrant> grants;
  std::vector<PageRelease> releases;
  std::vector<SubBatch> sub_batches;
  // For comparison (ContextPartition::kMasked): pages behind a prompt's tokens are attended to as well, and
  // what comes of it thrown away.
  bool compute_masked = false;

  bool is_for(std::int32_t coordinate) const { return coordinates.empty() || coordinates.has(coordinate); }
};

struct TokenLogprob {
  TokenId id = 0;
  float logprob = 0;
};

struct SampledToken {
  SequenceSlot sequence;
  TokenId id = 0;
  float logprob = 0;              // valid where logprobs were asked for
  std::vector<TokenLogprob> top;  // the k best, best first
};

struct PromptLogprobs {
  SequenceSlot sequence;
  std::int32_t position = 0;  // of the token scored
  TokenId id = 0;
  float logprob = 0;
  std::vector<TokenLogprob> top;
};

struct StepResult {
  PlanNumber number;
  // Set where the pass failed as a whole: every sequence of the plan fails with this sentence.
  std::string error;
  bool lost = false;  // the head's word, not on the wire: it failed with the rank that was to answer
  std::vector<SampledToken> sampled;
  std::vector<PromptLogprobs> prompt_logprobs;
  // Of each stage's pass, by stage: wall time without copies and what it waited for other stages. For the
  // cost model and the share of time that stages work.
  std::vector<double> stage_seconds;
  // What the plan's copies moved on the rank that answers, and in what time, which is in no stage's.
  std::uint64_t copied_bytes = 0;
  double copy_seconds = 0;
};

}  // namespace shoal
