// Sums through shared memory. Every rank copies its values into a buffer of its own and announces the round;
// then either reads everybody's and adds them up (one shot: R x n bytes read, one wait), or adds up its part
// of all and reads the others' results (two shots: 2 n bytes, two waits). Values that lie in the ranks'
// arenas are not copied: each rank adds its part of all up and writes the sums to where each rank wants them
// (in place: n bytes read and n written, two waits).
//
// Thread-safety: belongs to the executor thread; large pieces are shared out over its pool, thread i of a
//   rank meeting thread i of the others ("lane"), with no barrier between copying and adding.
// Invariants:
//   1. Rounds grow by one for every announcement and are the same on all ranks and lanes.
//   2. Two buffers a rank, used in turn: whoever has announced round k + 1 on lane 0 has finished reading
//      round k on all lanes, so a buffer is written again only when nobody reads it.
//   3. The lanes that a small piece leaves idle lag at most kMostLag rounds behind lane 0. Rounds wrap and
//      are compared by their distance, which holds up to 2^31.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/shared_sum.h"
#include "comm/shm_segment.h"
#include "comm/shm_wait.h"
#include "core/thread_pool.h"

namespace shoal::comm {

class ShmSum : public SharedSum {
 public:
  static constexpr std::uint32_t kMostLag = 1U << 16;

  // group, index: of the segment's layout. pool: null, or at least as many threads as the layout's lanes.
  // failed: the carrier's first error, kept by it for longer than this lives; sums set and obey it.
  ShmSum(std::shared_ptr<ShmSegment> segment, std::size_t group, std::int32_t index, Patience patience,
         ThreadPool* pool, Status& failed);

  // kInvalidArgument where a rank brings so many parts that not one line of each fits into a piece.
  Status sum(std::span<const std::int32_t> parts, std::span<const float* const> mine, std::int64_t n,
             float* out, TimePoint deadline) override;

 private:
  struct Piece {
    std::span<const std::int32_t> parts;
    std::span<const float* const> mine;
    std::int64_t begin = 0;  // in mine and out
    std::int64_t length = 0;
    float* out = nullptr;
    std::size_t buffer = 0;
    std::uint32_t round = 0;  // before the piece
    TimePoint deadline;
  };
  // Scratch of one lane: a rank's threads must not share lines.
  struct alignas(128) Lane {
    std::vector<const float*> pointers;
    std::vector<float*> places;
    Status status;
  };

  // Values of a part that go through the buffers at once.
  std::int64_t room(std::int32_t most_parts) const;
  Status sum_pieces(std::span<const std::int32_t> parts, std::span<const float* const> mine, std::int64_t n,
                    float* out, TimePoint deadline);
  // work(first, last, lane) on every lane's share of n values.
  template <typename F>
  Status run(std::int64_t n, std::int32_t lanes, F&& work);
  Status one_shot(const Piece& piece, std::int64_t first, std::int64_t last, std::size_t lane);
  Status two_shots(const Piece& piece, std::int64_t first, std::int64_t last, std::size_t lane);
  bool sums_in_place(std::span<const std::int32_t> parts, std::span<const float* const> mine, std::int64_t n,
                     const float* out) const;
  Status sum_in_place(std::int64_t n, float* values, TimePoint deadline);
  Status in_place(const Piece& piece, std::int64_t first, std::int64_t last, std::size_t lane);
  Expected<float*> values_of(std::int32_t index, std::size_t lane, std::int64_t n) const;
  void keep_lanes_near(std::int32_t lanes);
  void gather_pointers(const Piece& piece, std::int64_t first, std::size_t lane);
  void copy_in(const Piece& piece, std::int64_t first, std::int64_t last);
  void announce_round(std::size_t lane, std::uint32_t round);
  void catch_up();
  Status await_round(std::int32_t index, std::size_t lane, const Piece& piece, std::uint32_t round);
  Status await_others(std::size_t lane, const Piece& piece, std::uint32_t round);
  RoundLine& line(std::int32_t index, std::size_t lane) const {
    return *segment_->at<RoundLine>(
        segment_->layout().round_line(group_, static_cast<std::size_t>(index), lane));
  }
  float* buffer(std::int32_t index, const Piece& piece) const;
  std::int32_t ranks() const { return static_cast<std::int32_t>(ranks_); }

  std::shared_ptr<ShmSegment> segment_;
  std::size_t group_;
  std::size_t ranks_;
  std::int32_t index_;
  Patience patience_;
  ThreadPool* pool_;
  Status& failed_;
  std::uint32_t round_ = 0;
  std::uint32_t lanes_round_ = 0;  // announced last on the lanes other than 0
  std::size_t buffer_ = 0;
  std::vector<Lane> lanes_;
};

}  // namespace shoal::comm
