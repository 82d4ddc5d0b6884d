// Which waiting prompts get how many tokens of the next step.
//
// A stream that decodes is in every step, so the time between two of its tokens is the duration of one step,
// however many plans are in flight. A step with decode rows therefore has to fit the token-gap bound as a
// whole; a step without any only delays those who arrive meanwhile.
//
// Thread-safety: pure functions.
// Invariants:
//   1. Where any prompt waits, at least kPrefillFloor tokens (or all that wait) are dealt, whatever decode
//      takes: on each coordinate that has one.
//   2. Nobody gets more than it has left, nor more than its own limit.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layout/context_partition.h"
#include "policy/cost_model.h"

namespace shoal::policy {

inline constexpr std::int32_t kPrefillFloor = 16;
// Without a stream to hurt, a step may last this many token gaps: long enough to use the machine well, short
// enough for who arrives meanwhile (0.5 s by default).
inline constexpr double kIdleGaps = 2.5;

struct PrefillCandidate {
  std::int64_t context = 0;    // positions computed or in flight
  std::int64_t remaining = 0;  // tokens left to compute
  std::int64_t limit = 0;      // most tokens it may get in this step: pages, logits asked for
  double waited = 0;           // seconds since it arrived
  ContextLanes lanes{};        // who computes it, in equal parts
};

struct BatchLimits {
  double token_gap = 0.2;        // seconds between two tokens of a stream
  bool streams = false;          // whether one waits for this step, with rows in it or behind it
  std::int32_t stages = 1;       // of the pipeline
  std::int32_t fixed_chunk = 0;  // tokens of prefill per step, at most max_rows; 0: by time
  std::int32_t max_rows = 1024;  // prefill tokens of one step: bounds the activations' memory
};

struct PrefillShare {
  std::size_t candidate = 0;
  std::int64_t tokens = 0;
};

// Most prefill tokens of a step where `waiting` of them wait in all: while the first chunk passes the first
// stage, and the last one the last, the other stages have nothing to do.
std::int32_t pipelined_rows(std::int64_t waiting, const BatchLimits& limits);

// decode: the step's decode rows, by coordinate. Coordinates run side by side: the step lasts as long as the
// slowest, and each may have max_rows. Least remaining work first, in predicted seconds; every second of
// waiting counts as a second of work less, so that no prompt starves.
std::vector<PrefillShare> share_prefill(const CostModel& cost, std::span<const StepShape> decode,
                                        std::span<const PrefillCandidate> candidates,
                                        const BatchLimits& limits);

}  // namespace shoal::policy
