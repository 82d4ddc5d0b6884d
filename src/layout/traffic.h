// What a step moves between the ranks of a worker: the formulas that the traffic ledger is held against, and
// the planner's ground.
//
// Thread-safety: values and pure functions.
// Invariants: payload is what a caller asks to move, wire what leaves a rank, both in bytes and of one rank;
//   what a rank only receives is the sender's. Default mode: one part of a sum from each rank (strict mode
//   sends the model's segments apart).
//
// Per step of N tokens, R of whose logits are wanted, with hidden size d, L layers, T x P ranks:
//
//   tp      each rank, each layer of its stage: 2 sums of N rows of d values, of 4 bytes or, as messages in
//           bf16, 2; R rows in the model's last layer, whose other rows nobody reads (no sum where R is 0)
//   pp      each rank but the last stage's: N rows of d values in f32
//   sample  each rank of the last stage but its first: the best of its part of the vocabulary, an id and a
//           value, 8 bytes, for each row that a token is chosen for; the first: the chosen ids to every other
//           rank of the first stage and of its own. Rows without log-probabilities, top_k, top_p and min_p:
//           candidates and masses come on top (engine/shard_sampling.h)
//   plan    the head: the encoded plan (docs/wire.md, section 5) to every other rank; a sampling rank that
//           is not the head: the encoded result; the first rank of each stage but the last: the seconds of
//           the stages so far, 8 bytes each

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layout/layout.h"
#include "layout/step_plan.h"

namespace shoal {

struct Traffic {
  std::uint64_t calls = 0;
  std::uint64_t payload = 0;
  std::uint64_t wire = 0;

  Traffic& operator+=(const Traffic& other) {
    calls += other.calls;
    payload += other.payload;
    wire += other.wire;
    return *this;
  }
  friend bool operator==(const Traffic&, const Traffic&) = default;
};

struct StepTraffic {
  Traffic tp;
  Traffic pp;
  Traffic sample;
  Traffic plan;
  Traffic cp_ring;  // layout/context_traffic.h
  Traffic cp_merge;

  StepTraffic& operator+=(const StepTraffic& other) {
    tp += other.tp;
    pp += other.pp;
    sample += other.sample;
    plan += other.plan;
    cp_ring += other.cp_ring;
    cp_merge += other.cp_merge;
    return *this;
  }
};

// What of a model and its layout decides the traffic.
struct TrafficShape {
  Layout layout = Layout::single();
  std::vector<std::int32_t> stage_layers;
  std::int64_t hidden = 0;
  // Where each tensor rank's part of the vocabulary ends; empty where tp is 1.
  std::vector<std::int64_t> vocabulary_ends;
  // Whether ranks that sum together share memory. Else their sums are messages.
  bool shared_memory = true;
  // Bytes of a value of these messages: 4, or 2 where they go as bf16.
  std::int64_t sum_bytes = 4;
};

// Rows of one (cp, dp) coordinate's sub-batch.
struct StepRows {
  std::int64_t tokens = 0;
  std::int64_t logits = 0;   // rows whose logits are wanted
  std::int64_t sampled = 0;  // of them, those that a token is chosen for

  static StepRows of(const SubBatch& batch);
};

// Of this rank; in `plan` what accompanies the rows alone, without plan_traffic() and result_traffic().
StepTraffic step_traffic(const TrafficShape& shape, const StepRows& rows, std::int32_t rank);
// Of the head, for one step plan.
Traffic plan_traffic(const Layout& layout, const StepPlan& plan);
// Of a coordinate's sampling rank, where it is not the head, for a result without log-probabilities; an empty
// one where the coordinate has no rows.
Traffic result_traffic(const Layout& layout, const StepRows& rows, std::int32_t coordinate = 0);

// Bytes of rows of `width` f32 values that start on 64-byte borders: what lies between them travels too.
std::uint64_t row_bytes_moved(std::int64_t rows, std::int64_t width);
// Of the encoding in docs/wire.md, without the frame's header.
std::uint64_t encoded_bytes(const StepPlan& plan);

// How a sum over ranks that share no memory runs.
struct SumRoute {
  // Below this, in bytes of one rank's parts, one exchange of everything beats two of the parts' shares: a
  // message over loopback costs about 8 us whatever it holds, and 32 KiB take as long at 4 GB/s.
  static constexpr std::int64_t kDirectBytes = 32 * 1024;

  // Where the values that each rank adds up for all begin; sizes differ by at most one line of 16.
  static std::int64_t chunk_begin(std::int64_t values, std::int64_t index, std::int64_t ranks);
  // Bytes that rank `index` sends where each rank brings one part, of values that take `width` each.
  static std::uint64_t wire_bytes(std::int64_t values, std::int64_t index, std::int64_t ranks,
                                  std::int64_t width = 4);
};

}  // namespace shoal
