// One rank at work: its copy of the sequence table, and what a step plan makes it do.
//
// Thread-safety: none; it belongs to the rank's executor thread. run() uses the context's compute threads.
// Ownership: borrows model, KV store and thread pool; owns the sequence table, the samplers, the logits.
// Invariants:
//   1. It decides nothing: what run() does is a function of the plans applied so far (docs/execution.md P1).
//   2. Plans are applied in number order. One that does not fit the table, or throws, is answered with an
//      error: its closes are done, its sequences failed (what later plans ask of them is skipped, until they
//      close), all others are untouched. run() does not throw.
//   3. Batches of a size seen before allocate nothing but what the result carries.

#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"
#include "engine/sampler.h"
#include "kernels/context.h"
#include "kv/kv_store.h"
#include "layout/step_plan.h"
#include "model/forward.h"

namespace shoal::engine {

// Sees the logits of every sampled row as the model gave them: which answer (its seed and choice tell), which
// output index. Called on the executor thread. For tests that compare bits.
using LogitsObserver = std::function<void(const SamplingParams& sampling, std::uint64_t output_index,
                                          std::span<const float> logits)>;

class Rank {
 public:
  struct Options {
    std::int32_t max_slots = 0;  // rows of the sequence table
    std::int32_t sub_batch = 0;  // which (cp, dp) coordinate's work this rank does
    LogitsObserver observer;
  };

  Rank(model::Model& model, const kv::KvStore& store, kernels::Context context, Options options);

  StepResult run(const StepPlan& plan);

 private:
  struct Row {
    bool open = false;
    bool failed = false;  // a plan with its work failed: its KV is garbage, later work is skipped
    std::optional<Sampler> sampler;
    std::vector<TokenId> prompt;                   // where penalties or prompt log-probabilities need it
    TokenId last = -1;                             // sampled last
    std::vector<std::vector<std::int32_t>> slots;  // by group and logical page
  };

  // A sampled item, and where its logits lie.
  struct Sample {
    SequenceSlot sequence;
    std::int64_t logits_row = 0;
  };
  struct PromptScore {
    SequenceSlot sequence;
    std::int32_t position = 0;  // of the token scored
    std::int32_t k = 0;
    std::int64_t logits_row = 0;
  };

  Status apply(const StepPlan& plan, StepResult& result);
  void fail(const StepPlan& plan, StepResult& result, std::string_view what, std::string_view cause) noexcept;
  Status apply_changes(const StepPlan& plan);
  Status open(const SequenceOpen& open);
  Status grant(const PageGrant& grant);
  Status release(const PageRelease& release);
  Status add_item(const WorkItem& item);
  void compute(StepResult& result);
  void sample(StepResult& result);
  void score_prompts(StepResult& result);
  Row* row(SequenceSlot sequence);
  std::span<float> logits_row(std::int64_t row);

  model::Model& model_;
  const kv::KvStore& store_;
  kernels::Context context_;
  Options options_;
  std::int64_t vocabulary_;
  std::size_t groups_;
  PlanNumber next_{1};
  std::vector<Row> rows_;

  // Of the step at hand; kept for their capacity.
  model::Batch batch_;
  std::vector<model::BatchSpan> spare_spans_;
  std::vector<Sample> samples_;
  std::vector<PromptScore> scores_;
  std::vector<float> logits_;
};

}  // namespace shoal::engine
