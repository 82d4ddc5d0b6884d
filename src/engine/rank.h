// One rank at work: its copy of the sequence table, and what a step plan makes it do.
//
// Thread-safety: none; it belongs to the rank's executor thread. run() uses the context's compute threads.
// Ownership: borrows model, KV store and thread pool; owns the sequence table, the samplers, the logits.
// Invariants:
//   1. It decides nothing: what run() does is a function of the plans applied so far (docs/execution.md P1).
//   2. Plans are applied in number order. One that does not fit the table, or throws, is answered with an
//      error: its closes are done, its sequences failed (what later plans ask of them is skipped, until they
//      close), all others are untouched. run() does not throw.
//   3. Batches of a size seen before allocate nothing but what the result carries, and lists of rows
//      where the vocabulary is cut.
//   4. With peers, only the sampling rank's results mean anything. A rank that fails by itself, or
//      whose peers do, fails them all: peers->status() says so, and run() is of no use any more.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "core/expected.h"
#include "engine/rank_service.h"
#include "engine/sampler.h"
#include "engine/shard_sampling.h"
#include "kernels/context.h"
#include "kv/kv_store.h"
#include "kv/offload_buffer.h"
#include "layout/step_plan.h"
#include "model/forward.h"
#include "parallel/peers.h"

namespace shoal::engine {

// Sees the logits of every sampled row as the model gave them, each rank those of the ids from `first` on
// that it holds: which answer (its seed and choice tell), which output index. Called on the executor thread.
// For tests that compare bits.
using LogitsObserver = std::function<void(const SamplingParams& sampling, std::uint64_t output_index,
                                          TokenId first, std::span<const float> logits)>;

class Rank {
 public:
  struct Options {
    std::int32_t max_slots = 0;  // rows of the sequence table
    LogitsObserver observer;
    // The other ranks; null where there are none.
    parallel::Peers* peers = nullptr;
    // Of the head, for one coordinate, at most: ids of its plans that far back have been sent.
    std::int32_t plans_in_flight = 2;
    PlanNumber first_plan{1};
    // Told of each layer that a departing prompt's pages have; null: nobody.
    RankService* service = nullptr;
    // Where plans put pages of sequences that gave way; null: they put none.
    kv::OffloadBuffer* offload = nullptr;
  };

  Rank(model::Model& model, const kv::KvStore& store, kernels::Context context, Options options);

  StepResult run(const StepPlan& plan);
  // Whether run()'s result is the coordinate's answer, which the head waits for.
  bool answers(const StepPlan& plan) const { return samples() && plan.is_for(coordinate_); }

 private:
  struct Row {
    bool open = false;
    bool failed = false;  // a plan with its work failed: its KV is garbage, later work is skipped
    std::optional<Sampler> sampler;
    std::vector<TokenId> prompt;   // where penalties or prompt log-probabilities need it
    TokenId last = -1;             // sampled last
    std::int32_t awaited_ids = 0;  // of plans that it was sampled in, on their way here
    std::uint64_t opened = 0;      // tells this sequence from the slot's earlier ones
    // By group and logical page: where it lies, in its owner's pool, and which coordinate that is.
    std::vector<std::vector<std::int32_t>> slots;
    std::vector<std::vector<std::int32_t>> owners;
    // Where its prompt's KV goes to another worker: the room, else -1, and the pages that are told of.
    std::int64_t room = -1;
    std::int32_t room_tokens = 0;
    std::int32_t told_pages = 0;
  };
  // Pages of this rank that the plan at hand completes, of one KV group.
  struct Departing {
    std::uint64_t room = 0;
    std::int32_t group = 0;
    std::shared_ptr<const std::vector<SlotRun>> runs;
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

  // Ids that the sampling rank sends to this one, of one plan.
  struct AwaitedIds {
    std::uint64_t plan = 0;                                    // as own_plans_ counts
    std::vector<std::pair<SequenceSlot, std::uint64_t>> rows;  // slot and Row::opened
  };

  Status apply(const StepPlan& plan, StepResult& result);
  void fail(const StepPlan& plan, StepResult& result, std::string_view what, std::string_view cause) noexcept;
  // rank_copies.cc
  Status copy_pages(const StepPlan& plan, StepResult& result);

  Status apply_changes(const StepPlan& plan);
  Status open(const SequenceOpen& open);
  Status grant(const PageGrant& grant);
  Status release(const PageRelease& release);
  Status add_item(const WorkItem& item);
  Status add_context(const StepPlan& plan);
  void add_departing(const StepPlan& plan);
  void tell_departing(std::int32_t layer);
  bool wants_logits(const Row& at, const WorkItem& item, std::int32_t i) const;
  Status compute(StepResult& result);
  Status exchange_ids(const StepResult& result);
  // Those of the plan that is awaited longest.
  Status take_awaited_ids();
  void exchange_stage_seconds();
  // Of the pass at hand, so far, without copies and what it waited for other stages.
  double own_seconds() const;
  Status peers_status() const { return options_.peers == nullptr ? Status() : options_.peers->status(); }
  bool samples() const { return options_.peers == nullptr || options_.peers->samples(); }
  bool needs_ids() const { return options_.peers == nullptr || options_.peers->first_stage(); }
  void sample(StepResult& result);
  void score_prompts(StepResult& result);
  void sample_shards(StepResult& result);
  void observe_samples();
  Row* row(SequenceSlot sequence);
  // This rank's part.
  std::span<float> logits_row(std::int64_t row);

  model::Model& model_;
  const kv::KvStore& store_;
  kernels::Context context_;
  Options options_;
  std::int32_t coordinate_ = 0;   // whose work this rank does
  std::int32_t coordinates_ = 1;  // that sequences may lie with
  std::int64_t vocabulary_;
  std::size_t groups_;
  PlanNumber next_;
  std::uint64_t own_plans_ = 0;  // that were for this coordinate, so far
  std::vector<Row> rows_;
  std::uint64_t opens_ = 0;
  std::deque<AwaitedIds> awaited_;
  std::vector<std::pair<std::int32_t, std::int32_t>>
      layer_places_;  // by layer of the model: group, place in it
  // Where the vocabulary is cut over ranks.
  std::optional<ShardSampling> shards_;

  // Of the step at hand; kept for their capacity.
  model::Batch batch_;
  model::ContextBatch context_batch_;
  std::vector<model::BatchSpan> spare_spans_;
  std::vector<Sample> samples_;
  std::vector<PromptScore> scores_;
  std::vector<Departing> departing_;
  std::map<std::int32_t, std::int32_t> departing_ends_;  // by slot: the position behind what is computed
  std::vector<float> logits_;
  std::vector<TokenId> ids_;
  TimePoint began_{};
  double waited_before_ = 0;  // for other stages, until it began
  double copy_seconds_ = 0;
  std::vector<double> stage_seconds_;
};

}  // namespace shoal::engine
