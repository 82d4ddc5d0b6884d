// This rank's way to the other ranks of its worker: what layers and stages hand each other during a pass.
//
// A pass has nowhere to return an error from the middle of a layer, so the first failure sticks: later calls
// do nothing, what the pass computes is garbage, and whoever runs it asks status() once at its end.
//
// Thread-safety: belongs to the rank's executor thread.
// Ownership: borrows carrier and ledger; owns scratch, which only grows.
// Invariants: all ranks of a worker make matching calls in the same order: what is called follows from the
//   step plan alone.

#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/async_collectives.h"
#include "comm/carrier.h"
#include "comm/collectives.h"
#include "comm/ledger.h"
#include "core/expected.h"
#include "core/ids.h"
#include "layout/layout.h"
#include "tensor/buffer.h"
#include "tensor/matrix.h"

namespace shoal::parallel {

class Peers {
 public:
  Peers(const Layout& layout, std::int32_t rank, comm::Carrier& carrier, comm::Ledger& ledger,
        comm::Collectives::Options options = {});

  const Layout& layout() const { return layout_; }
  std::int32_t rank() const { return rank_; }
  std::int32_t stage() const { return at_.pp; }
  std::int32_t tensor_index() const { return at_.tp; }
  bool first_stage() const { return at_.pp == 0; }
  bool last_stage() const { return at_.pp + 1 == layout_.degrees().pp; }
  // The rank that samples for this (cp, dp) coordinate: tp 0 of the last stage.
  std::int32_t sampling_rank() const;
  bool samples() const { return rank_ == sampling_rank(); }

  // Ok, or the first failure.
  const Status& status() const { return status_; }
  // This rank cannot go on for a reason of its own: the others' waits end, too.
  void fail(Status status);

  // y becomes the sum over the tensor group, in rank order.
  void sum(MatrixView<float> y);
  // The same of parts: counts of every rank of the group; mine: this rank's, each with y's shape and stride.
  // Added in the order of the model's segments. y may be the first of mine.
  void sum_parts(std::span<const std::int32_t> counts, std::span<const float* const> mine,
                 MatrixView<float> y);
  // Room for `values` floats until the next call: parts that sum_parts() takes. A failure sticks, too.
  Expected<float*> part_scratch(std::int64_t values);

  // Room for `values` floats in memory that the ranks of this host see: what lies there is summed without
  // being copied. Null where there is none or less; alike on all ranks. The same place each time.
  float* shared_room(std::int64_t values) const;

  // The residual stream, f32, to the same coordinate of the next stage, or from that of the one before.
  void send_hidden(MatrixView<const float> x);
  void receive_hidden(MatrixView<float> x);
  // Seconds that the stages so far took for a pass, behind its residual stream: to and from the same ranks.
  void send_stage_seconds(std::span<const double> seconds);
  void receive_stage_seconds(std::span<double> seconds);
  // Seconds that this rank has waited for ranks of other stages so far.
  double waited_for_stages() const { return waited_for_stages_; }

  // Between the coordinates that a sequence's KV is spread over: the same tensor rank and stage of each, by
  // coordinate. All of them at once; several for one peer stand side by side.
  void exchange(comm::Purpose purpose, std::span<const comm::Outgoing> out,
                std::span<const comm::Incoming> in, std::uint64_t calls);
  // The sending half of it alone, so that the caller computes before it exchanges the rest. False, with
  // nothing sent, where that is more than the carrier keeps for those who do not receive yet.
  bool send_early(comm::Purpose purpose, std::span<const comm::Outgoing> out, std::uint64_t calls);
  // The same while the caller computes. Those begun end one after the other, in their order; until all have
  // been awaited nothing else of this object moves anything, and what was given is borrowed.
  void begin_exchange(comm::Purpose purpose, std::span<const comm::Outgoing> out,
                      std::span<const comm::Incoming> in, std::uint64_t calls);
  // Until the first of those begun has ended; at once where there is none.
  void await_exchange();
  bool exchanging() const { return !begun_.empty(); }
  std::int32_t context_index() const { return at_.cp; }
  std::int32_t context_size() const { return layout_.degrees().cp; }

  // What the ranks of the tensor group say of their parts of the vocabulary, to the first of them. theirs: by
  // rank of the group, used on the first alone; its own place is not written to.
  void gather_to_first(std::span<const std::byte> mine, std::span<const std::span<std::byte>> theirs);
  // From the first of the tensor group to the others.
  void tell_group(std::span<std::byte> bytes);

  // Sampled ids to the ranks of the first stage, which need them to go on, and to the others of the last,
  // whose penalties count them. The sampling rank sends, those receive.
  void send_ids(std::span<const TokenId> ids);
  void receive_ids(std::span<TokenId> ids);

 private:
  bool is_kept(std::span<const comm::Outgoing> out) const;
  template <typename F>
  void attempt(F&& f) {
    if (status_.ok()) status_ = f();
  }
  std::span<float> region(MatrixView<float> y) const;
  // Between stages: what it takes is time in which this one does not work.
  void send_on(comm::Purpose purpose, std::int32_t peer, std::span<const std::byte> bytes);
  void receive_from(comm::Purpose purpose, std::int32_t peer, std::span<std::byte> bytes);
  std::int32_t neighbour(std::int32_t stages_away) const;

  comm::Carrier& carrier_;
  comm::Ledger& ledger_;
  comm::Collectives::Options options_;
  Layout layout_;
  std::int32_t rank_;
  Coordinate at_;
  comm::Collectives tensor_;
  comm::Collectives context_;
  comm::Collectives all_;
  Status status_;
  std::deque<std::optional<comm::AsyncCollectives::Pending>> begun_;  // empty: nothing to move
  std::unique_ptr<comm::AsyncCollectives> background_;                // from the first on; ends before begun_
  Buffer parts_;
  double waited_for_stages_ = 0;
};

// Fails with kUnsupported, naming the first degree that this build cannot serve.
Status check_degrees(const Degrees& degrees);

}  // namespace shoal::parallel
