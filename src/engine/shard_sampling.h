// Choosing tokens where the vocabulary is cut over the ranks of a tensor group: each says what its part
// holds, the first of them decides. Logits stay where they are.
//
//   a row that the largest (perturbed) logit decides   that id of each part
//   a row that top_k, top_p or min_p restrict          the best ids of each part; eight times as many, where
//                                                      those of all parts together do not cover what is asked
//   log-probabilities, top_p of the whole              the mass of each vocabulary segment, folded in order
//
// Who gets how many bytes follows from the rows' parameters alone; only whether a further round is needed is
// told, in a byte for each row that may need one.
//
// Thread-safety: belongs to the executor thread; rows are dealt to the context's compute threads.
// Ownership: borrows everything; keeps scratch.
// Invariants: tokens and log-probabilities have the bits that Sampler::sample() and row_logprobs() give for
//   the whole row.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/sampler.h"
#include "kernels/context.h"
#include "kernels/sampling_math.h"
#include "layout/step_plan.h"
#include "parallel/peers.h"

namespace shoal::engine {

class ShardSampling {
 public:
  // A row to sample: this rank's part of its logits, changed meanwhile and restored.
  struct Row {
    Sampler* sampler = nullptr;
    std::span<float> logits;
  };
  // A prompt token to score, and how many of the best beside it.
  struct Score {
    TokenId id = 0;
    std::int32_t k = 0;
    std::span<const float> logits;
  };

  // ends: where each rank's part of the vocabulary ends.
  ShardSampling(const kernels::Context& context, parallel::Peers& peers, std::vector<std::int64_t> ends);

  // Every rank of the group calls it with the same rows. tokens: of each row, on the group's first rank, with
  // `sequence` left to the caller; elsewhere untouched. The samplers count a token, not which (note()).
  // Failures are the peers' status.
  void sample(std::span<const Row> rows, std::span<SampledToken> tokens);
  void score(std::span<const Score> scores, std::span<RowLogprobs> results);

 private:
  // Of a row's message: what is in it.
  struct Shape {
    std::int64_t ranked = 0;  // best candidates; 0: one, the part's best
    bool mass = false;
    bool raw = false;            // beside each candidate its logit as the model gave it
    std::int32_t logprobs = -1;  // masses and so many of the best, as the model gave them; -1: nothing
  };
  struct Merge;
  struct Chosen {
    TokenId id = 0;
    float raw = 0;
  };

  std::int64_t width(std::int32_t rank) const;
  TokenId first() const;
  std::size_t bytes_of(const Shape& shape, std::int32_t rank) const;
  void write(const Row& row, const Shape& shape, std::byte* out) const;
  void write_logprobs(std::span<const float> logits, std::int32_t k, std::byte*& out) const;
  template <typename F>
  void exchange(std::span<const Shape> shapes, F&& write_row);
  Merge merge(const Shape& shape, std::size_t row) const;
  static std::optional<Chosen> decide(const Merge& merged, const Sampler& sampler, bool all, float mass);
  static RowLogprobs logprobs_of(const Merge& merged, float raw);

  const kernels::Context& context_;
  parallel::Peers& peers_;
  std::vector<std::int64_t> ends_;
  // By rank: the rows' messages side by side, and where each begins.
  std::vector<std::vector<std::byte>> boxes_;
  std::vector<std::vector<std::size_t>> begins_;
};

}  // namespace shoal::engine
