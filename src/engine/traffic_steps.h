// Step plans written by hand: prompts in chunks, then tokens for all sequences together. What a bench runs
// where it must know every step.
//
// Thread-safety: none.
// Invariants: plans are numbered from 1. Every sequence has its own pages, side by side on each coordinate;
//   each page is granted in the plan that first writes it.

#pragma once

#include <cstdint>
#include <vector>

#include "layout/context_partition.h"
#include "layout/step_plan.h"

namespace shoal::engine {

class TrafficSteps {
 public:
  struct Options {
    std::int32_t sequences = 1;
    std::int32_t prompt = 512;  // tokens of each
    std::int32_t chunk = 512;   // of them, in one step
    std::int32_t generate = 16;
    std::int32_t groups = 1;  // KV groups
    std::int64_t vocabulary = 0;
    // All of them compute every prompt. Sequences are at home on them in turn as their prompts end; a segment
    // of decoded tokens goes to the coordinate behind that of the one before.
    std::int32_t coordinates = 1;
    ContextPartition partition = ContextPartition::kZigzag;
    bool pass_queries = false;  // of prompts
  };

  explicit TrafficSteps(Options options);

  // Of each coordinate's pool, at most.
  std::int64_t pages() const { return pages_each() * options_.sequences; }
  // All prompts, one after the other; a token is sampled at the end of each.
  std::vector<StepPlan> prefill();
  // `generate` steps of one token for every sequence, greedily; after prefill().
  std::vector<StepPlan> decode();
  // The same as if prompts had been computed: their pages hold whatever lies in the pool.
  std::vector<StepPlan> decode_only();
  // Of each page of a sequence so far, its coordinate.
  const std::vector<std::int32_t>& owners(std::int32_t sequence) const {
    return owners_[static_cast<std::size_t>(sequence)];
  }

 private:
  std::int64_t pages_each() const;
  StepPlan next_plan();
  // Pages of these coordinates for a sequence.
  void grant(StepPlan& plan, std::int32_t sequence, const std::vector<std::int32_t>& owners);
  void add_prompt(StepPlan& plan, std::int32_t sequence, std::int32_t begin, std::int32_t end);

  Options options_;
  std::uint64_t number_ = 0;
  std::vector<std::vector<std::int32_t>> owners_;  // by sequence and page
  std::vector<std::int32_t> homes_;                // by sequence
  std::vector<std::int32_t> next_slot_;            // by coordinate
};

}  // namespace shoal::engine
