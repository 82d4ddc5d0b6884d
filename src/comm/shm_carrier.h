// The carrier between ranks of one host: rings of bytes for messages, shared buffers for sums.
//
// Thread-safety: as Carrier.
// Ownership: shares the segment.
// Invariants: a rank that finds nothing to do sleeps on its doorbell; whoever puts bytes into a ring of its,
//   or takes some out, rings it.

#pragma once

#include <memory>
#include <vector>

#include "comm/carrier.h"
#include "comm/shm_segment.h"
#include "comm/shm_sum.h"
#include "comm/shm_wait.h"
#include "core/thread_pool.h"

namespace shoal::comm {

class ShmCarrier : public Carrier {
 public:
  struct Options {
    Patience patience;
    // For large sums; null where the layout has one lane.
    ThreadPool* pool = nullptr;
  };

  ShmCarrier(std::shared_ptr<ShmSegment> segment, std::int32_t rank, Options options);
  ShmCarrier(const ShmCarrier&) = delete;
  ShmCarrier& operator=(const ShmCarrier&) = delete;

  std::int32_t rank() const override { return rank_; }
  std::int32_t ranks() const override { return segment_->layout().ranks; }
  const char* name() const override { return "shm"; }
  Status transfer(std::span<const Outgoing> out, std::span<const Incoming> in, TimePoint deadline) override;
  std::size_t buffer_bytes(std::int32_t) const override { return segment_->layout().ring_bytes; }
  void set_spinning(bool spinning) override { spinning_ = spinning; }
  void abort(const std::string& reason) override { segment_->abort(reason); }
  std::span<std::byte> arena() override {
    return {segment_->at<std::byte>(segment_->layout().arena(rank_)), segment_->layout().arena_bytes};
  }
  SharedSum* shared_sum(const Group& group) override;

 private:
  // A message on its way: `at` counts from the start of its 8 bytes of length.
  struct Progress {
    std::size_t at = 0;
    bool done = false;
  };

  bool push_some(const Outgoing& out, Progress& progress);
  Expected<bool> pull_some(const Incoming& in, Progress& progress);
  void ring_bell(std::int32_t rank);
  Status move_all(std::span<const Outgoing> out, std::span<const Incoming> in, TimePoint deadline);

  std::shared_ptr<ShmSegment> segment_;
  std::int32_t rank_;
  Options options_;
  bool spinning_ = true;
  Status failed_;  // of sums too
  std::vector<Progress> sending_;
  std::vector<Progress> receiving_;
  // By the segment's groups; null where this rank is no member or has not asked.
  std::vector<std::unique_ptr<ShmSum>> sums_;
};

}  // namespace shoal::comm
