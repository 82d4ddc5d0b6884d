#include "kernels/feed_forward.h"

#include <algorithm>
#include <cassert>

#include "kernels/elementwise_kernels.h"
#include "kernels/matmul_plan.h"

namespace shoal::kernels {
namespace {

using Matrix = PackedMatrix::Impl;

// Columns of gate (and of up) at once: with 256 rows 64 KiB each, which stay in L2 beside the activations.
constexpr std::int64_t kColumns = 64;
// Kernels send rows of y that are whole lines past the caches; these are read at once, so they lie half a
// line off.
constexpr std::int64_t kHalfLine = 8;
constexpr std::int64_t kGatedFloats = kMostRows * kColumns + 2 * kHalfLine;
// Below this many rows the intermediate is small, and a product of few rows wants long runs of weights.
constexpr std::int64_t kFewestRows = 16;

class FeedForwardProduct {
 public:
  FeedForwardProduct(const Context& context, MatmulScratch::Impl& scratch, const FeedForward& block,
                     std::int64_t rows)
      : context_(context),
        scratch_(scratch),
        gate_up_(block.gate_up.impl()),
        down_(block.down.impl()),
        first_(choose(gate_up_, context, rows)),
        second_(choose(down_, context, rows)),
        activate_(block.activation == GatedActivation::kSilu
                      ? elementwise_kernels(context.isa).silu_row
                      : elementwise_kernels(context.isa).gelu_tanh_row),
        rows_(rows) {}

  // Rows that pass over gate and up at once.
  std::int64_t chunk() const {
    const Matrix* m = &gate_up_;
    return chunk_rows(context_, {&m, 1}, rows_);
  }

  // False where memory is out.
  bool reserve(std::int64_t rows) {
    const auto threads = static_cast<std::size_t>(threads_of(context_));
    const auto room = [](Buffer& buffer, std::size_t bytes) {
      return MatmulScratch::Impl::at_least(buffer, bytes);
    };
    outer_ = room(scratch_.forms[static_cast<int>(first_.form)], form_bytes(first_.form, gate_up_, rows));
    inner_ = room(scratch_.inner, form_bytes(second_.form, down_, rows));
    panels_ = room(scratch_.panels, threads * kScratchBytes);
    gated_ = reinterpret_cast<float*>(room(scratch_.gated, threads * 2 * kGatedFloats * sizeof(float)));
    return outer_ != nullptr && inner_ != nullptr && panels_ != nullptr && gated_ != nullptr;
  }

  void run(MatrixView<const float> x, MatrixView<float> y) {
    convert(context_, gate_up_, first_.form, x, outer_);
    const std::int64_t pieces = (down_.columns + kColumns - 1) / kColumns;
    deal(pieces, [&](std::int64_t piece, int thread) { fill_inner(piece * kColumns, x.rows, thread); });
    const Matrix* m = &down_;
    const std::int64_t part = chunk_rows(context_, {&m, 1}, rows_);
    for (std::int64_t row = 0; row < x.rows; row += part) {
      multiply_down(row, {y.row(row), std::min(part, x.rows - row), y.columns, y.stride});
    }
  }

 private:
  // f(item, thread) for [0, n): each thread its own share, which reads the weights it has placed.
  template <typename F>
  void deal(std::int64_t n, F&& f) {
    const int threads = threads_of(context_);
    run_on(context_, threads > 1, [&](int thread) {
      const PairRange range = pairs_of_thread(n, threads, thread);
      for (std::int64_t i = range.begin; i < range.end; ++i) f(i, thread);
    });
  }

  // Columns [column, column + kColumns) of the intermediate, all rows.
  void fill_inner(std::int64_t column, std::int64_t rows, int thread) {
    const std::int64_t columns = std::min(kColumns, down_.columns - column);
    float* gate = gated_ + 2 * kGatedFloats * thread + kHalfLine;
    float* up = gate + kGatedFloats;
    multiply_part(column, columns, rows, thread, gate);
    multiply_part(down_.columns + column, columns, rows, thread, up);
    activate_(gate, up, rows * columns, gate);

    const RowSegment whole{0, columns, 0};
    const std::int64_t group_rows = group_rows_of(second_.form);
    FormArgs args;
    args.x_stride = columns;
    args.segments = &whole;
    args.segment_count = 1;
    args.row_bytes = step_row_bytes_of(second_.form);
    args.step_bytes = args.row_bytes * group_rows;
    const FormRows rows_to_form = converter(second_.form, context_.isa);
    for (std::int64_t row = 0; row < rows; row += group_rows) {
      args.x = gate + row * columns;
      args.rows = std::min(group_rows, rows - row);
      args.out = inner_ + (row / group_rows * down_.steps + column / kStepInputs) * args.step_bytes;
      convert_group(second_.form, rows_to_form, args, 0, columns / kStepInputs);
    }
  }

  // Outputs [first, first + columns) of gate and up stacked, to y: [rows, columns].
  void multiply_part(std::int64_t first, std::int64_t columns, std::int64_t rows, int thread,
                     float* y) const {
    PanelArgs args = panel_args(gate_up_);
    args.blocks += static_cast<std::size_t>(first / kBlockColumns) * args.block_bytes;
    args.pair_end = columns / kPairColumns;
    args.x = outer_;
    args.rows = rows;
    args.y = y;
    args.y_stride = columns;
    args.columns = columns;
    args.scratch = panels_ + thread * kScratchBytes;
    first_.kernel(args);
  }

  // Rows of the intermediate from `row` on, as many as y has.
  void multiply_down(std::int64_t row, MatrixView<float> y) {
    assert(row % group_rows_of(second_.form) == 0);
    const int threads = threads_of(context_);
    run_on(context_, threads > 1, [&](int thread) {
      const PairRange range = pairs_of_thread(down_.pairs, threads, thread);
      PanelArgs args = panel_args(down_);
      args.pair_begin = range.begin;
      args.pair_end = range.end;
      args.x = inner_ + row * down_.steps * step_row_bytes_of(second_.form);
      args.rows = y.rows;
      args.y = y.data;
      args.y_stride = y.stride;
      args.scratch = panels_ + thread * kScratchBytes;
      second_.kernel(args);
    });
  }

  const Context& context_;
  MatmulScratch::Impl& scratch_;
  const Matrix& gate_up_;
  const Matrix& down_;
  const Choice first_;
  const Choice second_;
  void (*activate_)(const float* gate, const float* up, std::int64_t n, float* y);
  std::int64_t rows_;
  std::byte* outer_ = nullptr;
  std::byte* inner_ = nullptr;
  std::byte* panels_ = nullptr;
  float* gated_ = nullptr;
};

}  // namespace

bool takes_feed_forward(const FeedForward& block, std::int64_t rows) {
  const Matrix& down = block.down.impl();
  return rows >= kFewestRows && block.gate_up.rows() == 2 * down.columns &&
         down.columns % kPairColumns == 0 && down.steps * kStepInputs == down.columns;
}

void feed_forward(const Context& context, MatmulScratch& scratch, const FeedForward& block,
                  MatrixView<const float> x, MatrixView<float> y) {
  FeedForwardProduct product(context, scratch.impl(), block, x.rows);
  const std::int64_t at_once = product.chunk();
  if (!product.reserve(std::min(at_once, x.rows))) {
    fill_nan(y);
    return;
  }
  for (std::int64_t row = 0; row < x.rows; row += at_once) {
    const std::int64_t rows = std::min(at_once, x.rows - row);
    product.run({x.row(row), rows, x.columns, x.stride}, {y.row(row), rows, y.columns, y.stride});
  }
}

}  // namespace shoal::kernels
