#include "kernels/attention.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <vector>

#include "kernels/attention_kernels.h"
#include "kernels/parallel_items.h"

namespace shoal::kernels {
namespace {

constexpr std::int32_t kSegmentPages = kAttentionSegment / kPageTokens;
// Rows of one block: at head size 64 queries, segment and total sums take 3 x 16 KiB, of 2 MiB L2, and one
// page's 8 KiB of keys and values is read from L1 for all of them.
constexpr std::int32_t kBlockRows = 64;
// Where a block is too large a part of the work to share, blocks get smaller, down to this: 16 rows take more
// than a microsecond for a page's 8 KiB, so memory still keeps up. Only then are they cut by segments, whose
// sums take room in a long context (16 rows, 128k tokens: 2 MiB at head size 64).
constexpr std::int32_t kLeastBlockRows = 16;
// A block is cut by segments where it is more than this part of a thread's share, so that threads end
// together.
constexpr std::int64_t kPiecesPerThread = 4;

// Grow-only floats, 64-byte aligned; contents are lost when they grow. One per thread and use.
class FloatScratch {
 public:
  float* at_least(std::size_t n) {
    if (n > size_) {
      memory_.reset(static_cast<float*>(::operator new (n * sizeof(float), std::align_val_t{64})));
      size_ = n;
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(float* p) const { ::operator delete (p, std::align_val_t{64}); }
  };
  std::unique_ptr<float, Free> memory_;
  std::size_t size_ = 0;
};

// Consecutive rows of one KV head of one span; row i is head first_head + i % group at token i / group.
struct Block {
  const AttentionSpan* span;
  std::int32_t kv_head;
  std::int32_t first_head;  // query heads [first_head, first_head + group) read kv_head
  std::int32_t group;
  std::int32_t first_row;
  std::int32_t rows;
  std::int32_t page_begin;  // pages some row sees
  std::int32_t page_end;
  std::int64_t partials = -1;  // offset of this block's segment states where it is cut, else -1

  std::int32_t segment_begin() const { return page_begin / kSegmentPages; }
  std::int32_t segment_end() const { return (page_end + kSegmentPages - 1) / kSegmentPages; }
};

// One block over a run of its segments: what a thread takes.
struct Piece {
  std::int32_t block;
  std::int32_t segment_begin;
  std::int32_t segment_end;
  std::int64_t cost;  // rows x pages
};

struct Work {
  std::vector<Block> blocks;
  std::vector<Piece> pieces;
  FloatScratch partials;
};

struct Call {
  const KvView& pool;
  const AttentionShape& shape;
  const AttentionKernels& kernels;
  MatrixView<const float> q;
  MatrixView<float> out;
  float q_factor;
  float cap_log2;
};

std::int64_t pages_of(const Block& block, std::int32_t segment_begin, std::int32_t segment_end) {
  return std::min(block.page_end, segment_end * kSegmentPages) -
         std::max(block.page_begin, segment_begin * kSegmentPages);
}

// Calls f(span, kv_head, first query head, query heads) for every KV head of every span.
template <typename F>
void for_heads(const AttentionShape& shape, std::span<const AttentionSpan> spans, F&& f) {
  for (const AttentionSpan& span : spans) {
    if (span.rows <= 0) continue;
    for (std::int32_t head = 0; head < shape.query_heads;) {
      const std::int32_t kv_head = shape.kv_head_of[static_cast<std::size_t>(head)];
      std::int32_t end = head + 1;
      while (end < shape.query_heads && shape.kv_head_of[static_cast<std::size_t>(end)] == kv_head) ++end;
      f(span, kv_head, head, end - head);
      head = end;
    }
  }
}

// Rows of a block such that none is more than a piece's fair part, if kLeastBlockRows allows it.
std::int32_t block_rows_for(const AttentionShape& shape, std::span<const AttentionSpan> spans, int threads) {
  if (threads == 1) return kBlockRows;
  auto pages = [](const AttentionSpan& span) {
    return static_cast<std::int64_t>((span.start + span.rows - 1) / kPageTokens + 1);
  };
  std::int64_t total = 0;
  for_heads(shape, spans, [&](const AttentionSpan& span, std::int32_t, std::int32_t, std::int32_t group) {
    total += span.rows * group * pages(span);
  });
  for (std::int32_t block_rows = kBlockRows;; block_rows /= 2) {
    std::int64_t longest = 0;
    for_heads(shape, spans, [&](const AttentionSpan& span, std::int32_t, std::int32_t, std::int32_t group) {
      longest = std::max(longest, std::min(block_rows, span.rows * group) * pages(span));
    });
    if (longest * threads * kPiecesPerThread <= total || block_rows <= kLeastBlockRows) return block_rows;
  }
}

void list_blocks(const AttentionShape& shape, std::span<const AttentionSpan> spans, int threads,
                 std::vector<Block>& blocks) {
  blocks.clear();
  const std::int32_t block_rows = block_rows_for(shape, spans, threads);
  for_heads(shape, spans,
            [&](const AttentionSpan& span, std::int32_t kv_head, std::int32_t head, std::int32_t group) {
              assert(static_cast<std::int64_t>(span.slots.size()) * kPageTokens >= span.start + span.rows);
              for (std::int32_t row = 0; row < span.rows * group; row += block_rows) {
                Block block{&span, kv_head, head, group, row, std::min(block_rows, span.rows * group - row),
                            0,     0};
                const std::int32_t first = span.start + row / group;
                const std::int32_t last = span.start + (row + block.rows - 1) / group;
                block.page_begin = shape.window > 0 ? std::max(0, first - shape.window + 1) / kPageTokens : 0;
                block.page_end = last / kPageTokens + 1;
                blocks.push_back(block);
              }
            });
}

// Cuts blocks that are too long for a balanced end, gives those a place for partial sums (floats), and orders
// all pieces from the longest: the short ones fill the gaps at the end.
std::size_t cut_blocks(std::int32_t head_dim, int threads, Work& work) {
  std::int64_t total = 0;
  for (const Block& block : work.blocks) {
    total += static_cast<std::int64_t>(block.rows) * (block.page_end - block.page_begin);
  }
  const std::int64_t limit = std::max<std::int64_t>(1, total / (threads * kPiecesPerThread));
  std::size_t partials = 0;
  work.pieces.clear();
  for (std::size_t b = 0; b < work.blocks.size(); ++b) {
    Block& block = work.blocks[b];
    const std::int32_t begin = block.segment_begin();
    const std::int32_t end = block.segment_end();
    const std::int64_t cost = static_cast<std::int64_t>(block.rows) * (block.page_end - block.page_begin);
    std::int32_t step = end - begin;
    if (threads > 1 && cost > limit) {
      step = static_cast<std::int32_t>(std::max<std::int64_t>(1, step * limit / cost));
    }
    if (step < end - begin) {
      block.partials = static_cast<std::int64_t>(partials);
      partials += static_cast<std::size_t>(end - begin) * static_cast<std::size_t>(block.rows) *
                  static_cast<std::size_t>(head_dim + 2);
    }
    for (std::int32_t s = begin; s < end; s += step) {
      const std::int32_t stop = std::min(end, s + step);
      work.pieces.push_back({static_cast<std::int32_t>(b), s, stop, block.rows * pages_of(block, s, stop)});
    }
  }
  std::sort(work.pieces.begin(), work.pieces.end(), [](const Piece& a, const Piece& b) {
    if (a.cost != b.cost) return a.cost > b.cost;
    return a.block != b.block ? a.block < b.block : a.segment_begin < b.segment_begin;
  });
  return partials;
}

AttentionState state_at(float* p, std::int32_t rows) { return {p, p + rows, p + 2 * rows}; }

void clear(AttentionState state, std::int32_t rows, std::int32_t head_dim) {
  std::fill_n(state.m, rows, -std::numeric_limits<float>::infinity());
  std::fill_n(state.l, rows, 0.0F);
  std::fill_n(state.o, static_cast<std::int64_t>(rows) * head_dim, 0.0F);
}

void write_out(const Call& call, const Block& block, AttentionState state) {
  const std::int32_t d = call.shape.head_dim;
  for (std::int32_t r = 0; r < block.rows; ++r) {
    const std::int32_t row = block.first_row + r;
    const std::int32_t head = block.first_head + row % block.group;
    float* out =
        call.out.row(block.span->first_row + row / block.group) + static_cast<std::int64_t>(head) * d;
    const float* o = state.o + static_cast<std::int64_t>(r) * d;
    const float inverse = state.l[r] == 0 ? 0.0F : 1.0F / state.l[r];
    for (std::int32_t i = 0; i < d; ++i) out[i] = o[i] * inverse;
  }
}

void run_piece(const Call& call, const Block& block, const Piece& piece, float* partials) {
  thread_local FloatScratch scratch;
  thread_local std::vector<std::int32_t> positions;
  const std::int32_t d = call.shape.head_dim;
  const std::int32_t group_rows = call.kernels.group_rows;
  const std::size_t q_floats = static_cast<std::size_t>((block.rows + group_rows - 1) / group_rows) *
                               static_cast<std::size_t>(group_rows) * static_cast<std::size_t>(d);
  const std::size_t state_floats = static_cast<std::size_t>(block.rows) * static_cast<std::size_t>(d + 2);
  float* memory = scratch.at_least(q_floats + 2 * state_floats);
  positions.resize(kBlockRows);

  for (std::int32_t r = 0; r < block.rows; ++r) {
    const std::int32_t row = block.first_row + r;
    const std::int32_t token = row / block.group;
    const std::int32_t head = block.first_head + row % block.group;
    positions[static_cast<std::size_t>(r)] = block.span->start + token;
    const float* q = call.q.row(block.span->first_row + token) + static_cast<std::int64_t>(head) * d;
    float* packed =
        memory + static_cast<std::ptrdiff_t>(r / group_rows) * group_rows * d + r % group_rows * 2;
    for (std::int32_t i = 0; i < d; i += 2, packed += 2 * group_rows) {
      packed[0] = q[i] * call.q_factor;
      packed[1] = q[i + 1] * call.q_factor;
    }
  }
  AttentionBlock task;
  task.q = memory;
  task.positions = positions.data();
  task.rows = block.rows;
  task.head_dim = d;
  task.k_slab = call.pool.k<std::byte>(call.shape.layer, block.kv_head, 0);
  task.v_slab = call.pool.v<std::byte>(call.shape.layer, block.kv_head, 0);
  task.tile_bytes = call.pool.layout.tile_bytes();
  task.slots = block.span->slots.data();
  task.page_end = std::min(block.page_end, piece.segment_end * kSegmentPages);
  task.window = call.shape.window;
  task.cap_log2 = call.cap_log2;

  const auto fold =
      call.pool.layout.dtype == KvDType::kBf16 ? call.kernels.fold_pages_bf16 : call.kernels.fold_pages_f32;
  const AttentionState segment_state = state_at(memory + q_floats, block.rows);
  const AttentionState total = state_at(memory + q_floats + state_floats, block.rows);
  if (partials == nullptr) clear(total, block.rows, d);
  for (std::int32_t s = piece.segment_begin; s < piece.segment_end; ++s) {
    AttentionState state = segment_state;
    if (partials != nullptr) {
      state =
          state_at(partials + static_cast<std::size_t>(s - block.segment_begin()) * state_floats, block.rows);
    }
    clear(state, block.rows, d);
    fold(task, std::max(block.page_begin, s * kSegmentPages),
         std::min(block.page_end, (s + 1) * kSegmentPages), state);
    if (partials == nullptr) call.kernels.fold_states(block.rows, d, total, state);
  }
  if (partials == nullptr) write_out(call, block, total);
}

// Folds a cut block's segments in order: the same operations as run_piece does for a whole one.
void join_block(const Call& call, const Block& block, float* partials) {
  thread_local FloatScratch scratch;
  const std::int32_t d = call.shape.head_dim;
  const std::size_t state_floats = static_cast<std::size_t>(block.rows) * static_cast<std::size_t>(d + 2);
  const AttentionState total = state_at(scratch.at_least(state_floats), block.rows);
  clear(total, block.rows, d);
  for (std::int32_t s = block.segment_begin(); s < block.segment_end(); ++s) {
    call.kernels.fold_states(block.rows, d, total, state_at(partials, block.rows));
    partials += state_floats;
  }
  write_out(call, block, total);
}

// Time of `pairs` query-key pairs on one thread, in ns: 4 * head_dim flops each at some 50 GFLOP/s.
std::int64_t pairs_ns(std::int64_t pairs, std::int32_t head_dim) { return pairs * 4 * head_dim / 50; }

}  // namespace

const AttentionKernels& attention_kernels(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kScalar:
      return kAttentionScalar;
    case Isa::kAvx2:
      return kAttentionAvx2;
    case Isa::kAvx512:
    case Isa::kAmx:
      return kAttentionAvx512;
  }
#endif
  (void)isa;
  return kAttentionScalar;
}

void attention(const Context& context, const KvView& pool, const AttentionShape& shape,
               std::span<const AttentionSpan> spans, MatrixView<const float> q, MatrixView<float> out) {
  constexpr float kLog2E = 1.44269504F;
  Call call{pool, shape, attention_kernels(context.isa), q, out, shape.scale * kLog2E, 0};
  if (shape.softcap > 0) {
    call.q_factor = shape.scale / shape.softcap;
    call.cap_log2 = shape.softcap * kLog2E;
  }
  // Grow-only, of the executor's thread: after the longest plan so far nothing is allocated.
  thread_local Work kept;
  Work& work = kept;
  const int threads = context.pool == nullptr ? 1 : context.pool->size();
  list_blocks(shape, spans, threads, work.blocks);
  float* partials = work.partials.at_least(cut_blocks(shape.head_dim, threads, work));

  std::int64_t cost = 0;
  for (const Piece& piece : work.pieces) cost += piece.cost;
  parallel_items(context, static_cast<std::int64_t>(work.pieces.size()), 1,
                 pairs_ns(cost * kPageTokens, shape.head_dim), [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) {
                     const Piece& piece = work.pieces[static_cast<std::size_t>(i)];
                     const Block& block = work.blocks[static_cast<std::size_t>(piece.block)];
                     run_piece(call, block, piece, block.partials < 0 ? nullptr : partials + block.partials);
                   }
                 });

  std::erase_if(work.blocks, [](const Block& block) { return block.partials < 0; });
  std::int64_t cut_pairs = 0;
  for (const Block& block : work.blocks) {
    cut_pairs += static_cast<std::int64_t>(block.rows) * (block.segment_end() - block.segment_begin());
  }
  parallel_items(context, static_cast<std::int64_t>(work.blocks.size()), 1,
                 pairs_ns(cut_pairs, shape.head_dim), [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) {
                     const Block& block = work.blocks[static_cast<std::size_t>(i)];
                     join_block(call, block, partials + block.partials);
                   }
                 });
}

}  // namespace shoal::kernels
