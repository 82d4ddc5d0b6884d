// Step plans written by hand: prompts in chunks, then tokens for all sequences together. What a bench runs
// where it must know every step.
//
// Thread-safety: none.
// Invariants: plans are numbered from 1. Every sequence has its own pages, side by side; each page is granted
//   in the plan that first writes it.

#pragma once

#include <cstdint>
#include <vector>

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
  };

  explicit TrafficSteps(Options options) : options_(options) {}

  std::int64_t pages() const { return pages_each() * options_.sequences; }
  // All prompts, one after the other; a token is sampled at the end of each.
  std::vector<StepPlan> prefill();
  // `generate` steps of one token for every sequence, greedily; after prefill().
  std::vector<StepPlan> decode();

 private:
  std::int64_t pages_each() const;
  StepPlan next_plan();
  // Of positions [first, last) that no earlier plan has had.
  void grant(StepPlan& plan, std::int32_t sequence, std::int32_t first, std::int32_t last) const;

  Options options_;
  std::uint64_t number_ = 0;
};

}  // namespace shoal::engine
