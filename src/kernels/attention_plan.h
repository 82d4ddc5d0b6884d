// How one call's attention is cut into pieces that threads take: by KV head, by rows, and by keys where a
// block would otherwise keep one thread busy after the others have ended.
//
// Thread-safety: none; a plan belongs to the thread that makes it. Threads may read a finished one.
// Ownership: borrows the spans until the next make().
// Invariants:
//   1. Every row of every span lies in one block; the pieces of a block cover the pages that some row of it
//      sees, in order, without gap or overlap. A block that is not cut is one piece.
//   2. Pieces are cut between segments only (AttentionCut::segment_pages).

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention.h"

namespace shoal::kernels {

// How rows of one head are cut. Costs are in rows x pages.
struct AttentionCut {
  std::int32_t most_rows = 0;      // of a block
  std::int32_t least_rows = 0;     // blocks get no smaller for balance; beyond, keys are cut
  std::int32_t segment_pages = 0;  // keys are cut between multiples of this
  std::int32_t rows_per_read = 1;  // fewer rows cost as much as these
  bool state_per_segment = false;  // one partial state for each segment of a cut block, not for each piece
};

// Consecutive rows of one KV head of one span; row i is query head first_head + i % group at token i / group.
struct RowBlock {
  const AttentionSpan* span = nullptr;
  bool chunked = false;
  std::int32_t kv_head = 0;
  std::int32_t first_head = 0;  // query heads [first_head, first_head + group) read kv_head
  std::int32_t group = 0;
  std::int32_t first_row = 0;
  std::int32_t rows = 0;
  std::int32_t page_begin = 0;  // pages some row sees
  std::int32_t page_end = 0;
  // Partial states of a block that is cut: how many, and where the first is, in floats. 0: not cut.
  std::int32_t states = 0;
  std::size_t first_state = 0;
};

// One block over a run of its pages: what a thread takes.
struct AttentionPiece {
  std::int32_t block = 0;
  std::int32_t page_begin = 0;
  std::int32_t page_end = 0;
  std::int32_t state = 0;  // index of its first among the block's
  std::int64_t cost = 0;
};

class AttentionPlan {
 public:
  // exact: how heads are cut; chunked: how those with at least `chunked_from` rows in a span are.
  void make(const AttentionShape& shape, std::span<const AttentionSpan> spans, int threads,
            const AttentionCut& exact, const AttentionCut& chunked, std::int32_t chunked_from);

  std::span<const RowBlock> blocks() const { return blocks_; }
  // The longest first: the short ones fill the gaps at the end.
  std::span<const AttentionPiece> pieces() const { return pieces_; }
  std::int64_t cost() const { return cost_; }
  // Room for all partial states.
  std::size_t state_floats() const { return state_floats_; }
  // Of one state: m [rows], l [rows], o [rows][head_dim].
  static std::size_t state_floats(std::int32_t rows, std::int32_t head_dim) {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(head_dim + 2);
  }

 private:
  void list_blocks(const AttentionShape& shape, std::span<const AttentionSpan> spans, int threads,
                   const AttentionCut* cuts, std::int32_t chunked_from);
  void cut_block(std::int32_t index, const AttentionCut& cut, std::int64_t limit, std::int32_t head_dim);

  std::vector<RowBlock> blocks_;
  std::vector<AttentionPiece> pieces_;
  std::int64_t cost_ = 0;
  std::size_t state_floats_ = 0;
};

}  // namespace shoal::kernels
