#include "kernels/attention.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <memory>
#include <new>
#include <vector>

#include "kernels/attention_kernels.h"
#include "kernels/attention_plan.h"
#include "kernels/parallel_items.h"

namespace shoal::kernels {
namespace {

// Rows that fold page by page together: at head size 64 queries, segment and total sums take 3 x 16 KiB, of 2
// MiB L2, and one page's 8 KiB of keys and values is read from L1 for all of them.
constexpr std::int32_t kExactRows = 64;
// 16 rows take more than a microsecond for a page's 8 KiB, so memory still keeps up. Keys are cut only then:
// the sums of their segments take room in a long context (16 rows, 128k tokens: 2 MiB at head size 64).
constexpr AttentionCut kExactCut{.most_rows = kExactRows,
                                 .least_rows = 16,
                                 .segment_pages = kSegmentPages,
                                 .rows_per_read = 1,
                                 .state_per_segment = true};
// 512 rows at head size 64 are 64 KiB of queries and 128 KiB of sums: with the keys and values of a chunk and
// the next (128 KiB) a quarter of a 2 MiB L2. At head size 256 it is half.
constexpr std::int32_t kChunkedRows = 512;
constexpr std::int32_t kChunkedSegmentPages = 16;

// Grow-only bytes, 64-byte aligned; contents are lost when they grow. One per thread and use.
class Scratch {
 public:
  std::byte* bytes(std::size_t n) {
    if (n > size_) {
      memory_.reset(static_cast<std::byte*>(::operator new (n, std::align_val_t{64})));
      size_ = n;
    }
    return memory_.get();
  }
  float* floats(std::size_t n) { return reinterpret_cast<float*>(bytes(n * sizeof(float))); }

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{64}); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t size_ = 0;
};

struct Call {
  const KvView& pool;
  const AttentionShape& shape;
  const AttentionKernels& kernels;
  const ChunkedAttention* chunked;
  MatrixView<const float> q;
  MatrixView<float> out;
  float q_factor;
  float cap_log2;
  bool gives_states = false;  // out: rows of states

  std::int32_t head_dim() const { return shape.head_dim; }
};

// From row `row` on.
AttentionState rows_from(AttentionState state, std::int32_t row, std::int32_t head_dim) {
  return {state.m + row, state.l + row, state.o + static_cast<std::ptrdiff_t>(row) * head_dim};
}

void clear(AttentionState state, std::int32_t rows, std::int32_t head_dim) {
  std::fill_n(state.m, rows, -std::numeric_limits<float>::infinity());
  std::fill_n(state.l, rows, 0.0F);
  std::fill_n(state.o, static_cast<std::int64_t>(rows) * head_dim, 0.0F);
}

KvPages pages_of(const Call& call, const RowBlock& block, std::int32_t begin, std::int32_t end) {
  KvPages run;
  run.k_slab = call.pool.k<std::byte>(call.shape.layer, block.kv_head, 0);
  run.v_slab = call.pool.v<std::byte>(call.shape.layer, block.kv_head, 0);
  run.slots = block.span->slots.data();
  run.begin = begin;
  run.end = end;
  return run;
}

// Rows [first, first + rows) of a block to their places in the output: normalised, or as they are where
// states are asked for.
void write_out(const Call& call, const RowBlock& block, std::int32_t first, std::int32_t rows,
               AttentionState state) {
  const std::int32_t d = call.head_dim();
  for (std::int32_t r = 0; r < rows; ++r) {
    const std::int32_t row = block.first_row + first + r;
    const std::int32_t token = row / block.group;
    const std::int32_t head = block.first_head + row % block.group;
    const float* o = state.o + static_cast<std::int64_t>(r) * d;
    if (!call.gives_states) {
      normalise_row(o, state.l[r], d,
                    call.out.row(block.span->first_row + token) + static_cast<std::int64_t>(head) * d);
      continue;
    }
    const AttentionState to = state_at(call.out.row(block.span->state_row + token), call.shape.query_heads);
    to.m[head] = state.m[r];
    to.l[head] = state.l[r];
    std::copy_n(o, d, to.o + static_cast<std::int64_t>(head) * d);
  }
}

// At most kExactRows rows of a block, packed as the exact kernels take them.
struct ExactRows {
  AttentionBlock task;
  float* free = nullptr;  // room for two states
};

ExactRows pack_rows(const Call& call, const RowBlock& block, std::int32_t first, std::int32_t rows) {
  thread_local Scratch scratch;
  thread_local std::int32_t positions[kExactRows];
  const std::int32_t d = call.head_dim();
  const std::int32_t group_rows = call.kernels.group_rows;
  const std::size_t q_floats = static_cast<std::size_t>((rows + group_rows - 1) / group_rows) *
                               static_cast<std::size_t>(group_rows) * static_cast<std::size_t>(d);
  float* memory = scratch.floats(q_floats + 2 * AttentionPlan::state_floats(rows, d));
  for (std::int32_t r = 0; r < rows; ++r) {
    const std::int32_t row = block.first_row + first + r;
    const std::int32_t token = row / block.group;
    const std::int32_t head = block.first_head + row % block.group;
    positions[r] = block.span->start + token;
    const float* q = call.q.row(block.span->first_row + token) + static_cast<std::int64_t>(head) * d;
    float* packed =
        memory + static_cast<std::ptrdiff_t>(r / group_rows) * group_rows * d + r % group_rows * 2;
    for (std::int32_t i = 0; i < d; i += 2, packed += 2 * group_rows) {
      packed[0] = q[i] * call.q_factor;
      packed[1] = q[i + 1] * call.q_factor;
    }
  }
  ExactRows packed;
  packed.task.q = memory;
  packed.task.positions = positions;
  packed.task.rows = rows;
  packed.task.head_dim = d;
  packed.task.tile_bytes = call.pool.layout.tile_bytes();
  packed.task.window = call.shape.window;
  packed.task.cap_log2 = call.cap_log2;
  packed.free = memory + q_floats;
  return packed;
}

void fold_segment(const Call& call, const AttentionBlock& task, std::int32_t segment, AttentionState state) {
  const auto fold =
      call.pool.layout.dtype == KvDType::kBf16 ? call.kernels.fold_pages_bf16 : call.kernels.fold_pages_f32;
  clear(state, task.rows, task.head_dim);
  fold(task, std::max(task.pages.begin, segment * kSegmentPages),
       std::min(task.pages.end, (segment + 1) * kSegmentPages), state);
}

std::int32_t segment_end(std::int32_t page_end) { return (page_end + kSegmentPages - 1) / kSegmentPages; }

// The piece's segments folded into `total` (cleared first), left to right.
void fold_exactly(const Call& call, const ExactRows& rows, AttentionState segment, AttentionState total) {
  const AttentionBlock& task = rows.task;
  clear(total, task.rows, task.head_dim);
  for (std::int32_t s = task.pages.begin / kSegmentPages; s < segment_end(task.pages.end); ++s) {
    fold_segment(call, task, s, segment);
    call.kernels.fold_states(task.rows, task.head_dim, total, segment);
  }
}

// states: of the block, where it is cut.
void run_exact(const Call& call, const RowBlock& block, const AttentionPiece& piece, const KvPages& after,
               float* states) {
  ExactRows rows = pack_rows(call, block, 0, block.rows);
  rows.task.pages = pages_of(call, block, piece.page_begin, piece.page_end);
  rows.task.after = after;
  const std::size_t state_floats = AttentionPlan::state_floats(block.rows, call.head_dim());
  if (states == nullptr) {
    const AttentionState total = state_at(rows.free + state_floats, block.rows);
    fold_exactly(call, rows, state_at(rows.free, block.rows), total);
    write_out(call, block, 0, block.rows, total);
    return;
  }
  float* state = states + static_cast<std::size_t>(piece.state) * state_floats;
  for (std::int32_t s = piece.page_begin / kSegmentPages; s < segment_end(piece.page_end); ++s) {
    fold_segment(call, rows.task, s, state_at(state, block.rows));
    state += state_floats;
  }
}

// What chunked arithmetic refused: the same rows and pages, page by page.
void run_refused(const Call& call, const RowBlock& block, const AttentionPiece& piece, float* states) {
  const std::int32_t d = call.head_dim();
  for (std::int32_t first = 0; first < block.rows; first += kExactRows) {
    const std::int32_t n = std::min(kExactRows, block.rows - first);
    ExactRows rows = pack_rows(call, block, first, n);
    rows.task.pages = pages_of(call, block, piece.page_begin, piece.page_end);
    AttentionState total = state_at(rows.free + AttentionPlan::state_floats(n, d), n);
    if (states != nullptr) {
      float* state =
          states + static_cast<std::size_t>(piece.state) * AttentionPlan::state_floats(block.rows, d);
      total = rows_from(state_at(state, block.rows), first, d);
    }
    fold_exactly(call, rows, state_at(rows.free, n), total);
    if (states == nullptr) write_out(call, block, first, n, total);
  }
}

void run_chunked(const Call& call, const RowBlock& block, const AttentionPiece& piece, const KvPages& after,
                 float* states) {
  thread_local Scratch scratch;
  const std::int32_t d = call.head_dim();
  const std::int64_t column = static_cast<std::int64_t>(block.first_head) * d;
  AttentionRows rows;
  rows.q = call.q.row(block.span->first_row) + column;
  rows.q_stride = call.q.stride;
  rows.group = block.group;
  rows.first_row = block.first_row;
  rows.rows = block.rows;
  rows.start = block.span->start;
  rows.head_dim = d;
  rows.q_factor = call.q_factor;
  rows.cap_log2 = call.cap_log2;
  rows.window = call.shape.window;
  rows.pages = pages_of(call, block, piece.page_begin, piece.page_end);
  rows.after = after;
  rows.tile_bytes = call.pool.layout.tile_bytes();
  AttentionState state;
  float* out = nullptr;
  if (states != nullptr) {
    state =
        state_at(states + static_cast<std::size_t>(piece.state) * AttentionPlan::state_floats(block.rows, d),
                 block.rows);
  } else if (call.gives_states) {
    thread_local Scratch kept;
    state = state_at(kept.floats(AttentionPlan::state_floats(block.rows, d)), block.rows);
  } else {
    out = call.out.row(block.span->first_row) + column;
  }
  std::byte* workspace = scratch.bytes(call.chunked->workspace_bytes(block.rows, d));
  if (!call.chunked->fold_rows(rows, workspace, state, out, call.out.stride)) {
    run_refused(call, block, piece, states);
  } else if (states == nullptr && call.gives_states) {
    write_out(call, block, 0, block.rows, state);
  }
}

// Folds a cut block's states in order.
void join_block(const Call& call, const RowBlock& block, float* states) {
  thread_local Scratch scratch;
  const std::int32_t d = call.head_dim();
  const std::size_t state_floats = AttentionPlan::state_floats(block.rows, d);
  const AttentionState total = state_at(scratch.floats(state_floats), block.rows);
  clear(total, block.rows, d);
  for (std::int32_t s = 0; s < block.states; ++s) {
    call.kernels.fold_states(block.rows, d, total, state_at(states, block.rows));
    states += state_floats;
  }
  write_out(call, block, 0, block.rows, total);
}

// Time of `pairs` query-key pairs on one thread, in ns: 4 * head_dim flops each at some 100 GFLOP/s.
std::int64_t pairs_ns(std::int64_t pairs, std::int32_t head_dim) { return pairs * 4 * head_dim / 100; }

// Null where every row is folded page by page: see attention.h, invariants 2 and 3.
const ChunkedAttention* chunked_for(const Context& context, const KvView& pool, const AttentionShape& shape) {
  if (context.strict || context.activations == Activations::kF32) return nullptr;
  if (pool.layout.dtype != KvDType::kBf16) return nullptr;
  const ChunkedAttention* chunked = chunked_attention(context.isa);
  return chunked != nullptr && chunked->takes_head_dim(shape.head_dim) ? chunked : nullptr;
}

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

const ChunkedAttention* chunked_attention(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kScalar:
      return nullptr;
    case Isa::kAvx2:
      return &kChunkedAvx2;
    case Isa::kAvx512:
      return &kChunkedAvx512;
    case Isa::kAmx:
      return amx_attention();
  }
#endif
  (void)isa;
  return nullptr;
}

namespace {

void run_all(const Context& context, const Call& call, std::span<const AttentionSpan> spans) {
  // Grow-only, of the executor's thread: after the longest plan so far nothing is allocated.
  thread_local AttentionPlan kept;
  thread_local Scratch kept_states;
  AttentionPlan& plan = kept;
  const int threads = context.pool == nullptr ? 1 : context.pool->size();
  AttentionCut chunked_cut{.most_rows = kChunkedRows,
                           .least_rows = kExactRows,
                           .segment_pages = kChunkedSegmentPages,
                           .rows_per_read = 1,
                           .state_per_segment = false};
  std::int32_t chunked_from = std::numeric_limits<std::int32_t>::max();
  if (call.chunked != nullptr) {
    chunked_from = call.chunked->least_rows;
    chunked_cut.rows_per_read = call.chunked->rows_per_read;
  }
  plan.make(call.shape, spans, threads, kExactCut, chunked_cut, chunked_from);
  float* states = kept_states.floats(plan.state_floats());

  const std::span<const AttentionPiece> pieces = plan.pieces();
  const auto run = [&](std::int64_t i) {
    const AttentionPiece& piece = pieces[static_cast<std::size_t>(i)];
    const RowBlock& block = plan.blocks()[static_cast<std::size_t>(piece.block)];
    // A guess, with which one more piece starts warm.
    KvPages after;
    if (const auto next = static_cast<std::size_t>(i + threads); next < pieces.size()) {
      after = pages_of(call, plan.blocks()[static_cast<std::size_t>(pieces[next].block)],
                       pieces[next].page_begin, pieces[next].page_end);
    }
    float* block_states = block.states == 0 ? nullptr : states + block.first_state;
    if (block.chunked) {
      run_chunked(call, block, piece, after, block_states);
    } else {
      run_exact(call, block, piece, after, block_states);
    }
  };
  parallel_items(context, static_cast<std::int64_t>(pieces.size()), 1,
                 pairs_ns(plan.cost() * kPageTokens, call.head_dim()),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) run(i);
                 });

  thread_local std::vector<const RowBlock*> kept_cut;
  std::vector<const RowBlock*>& cut = kept_cut;
  cut.clear();
  std::int64_t cut_pairs = 0;
  for (const RowBlock& block : plan.blocks()) {
    if (block.states == 0) continue;
    cut.push_back(&block);
    cut_pairs += static_cast<std::int64_t>(block.rows) * block.states;
  }
  parallel_items(context, static_cast<std::int64_t>(cut.size()), 1, pairs_ns(cut_pairs, call.head_dim()),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) {
                     const RowBlock& block = *cut[static_cast<std::size_t>(i)];
                     join_block(call, block, states + block.first_state);
                   }
                 });
}

Call call_of(const Context& context, const KvView& pool, const AttentionShape& shape,
             MatrixView<const float> q, MatrixView<float> out) {
  constexpr float kLog2E = 1.44269504F;
  Call call{pool, shape, attention_kernels(context.isa), chunked_for(context, pool, shape),
            q,    out,   shape.scale * kLog2E,           0};
  if (shape.softcap > 0) {
    call.q_factor = shape.scale / shape.softcap;
    call.cap_log2 = shape.softcap * kLog2E;
  }
  return call;
}

}  // namespace

void attention(const Context& context, const KvView& pool, const AttentionShape& shape,
               std::span<const AttentionSpan> spans, MatrixView<const float> q, MatrixView<float> out) {
  run_all(context, call_of(context, pool, shape, q, out), spans);
}

void attention_states(const Context& context, const KvView& pool, const AttentionShape& shape,
                      std::span<const AttentionSpan> spans, MatrixView<const float> q,
                      MatrixView<float> states) {
  Call call = call_of(context, pool, shape, q, states);
  call.gives_states = true;
  run_all(context, call, spans);
}

}  // namespace shoal::kernels
