#include "kernels/matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>

#include "kernels/matmul_plan.h"

namespace shoal::kernels {
namespace {

using Matrix = PackedMatrix::Impl;

// q, k and v have three; tests more.
constexpr std::size_t kMostTargets = 16;

// One chunk of rows through every target. False where scratch could not grow.
bool multiply_chunk(const Context& context, MatmulScratch::Impl& scratch, MatrixView<const float> x,
                    std::span<const MatmulTarget> targets, std::int64_t first_row, std::int64_t total_rows) {
  const std::byte* forms[kForms] = {};
  for (const MatmulTarget& target : targets) {
    const Matrix& m = target.weights->impl();
    const Form form = choose(m, context, total_rows).form;
    const std::byte*& ready = forms[static_cast<int>(form)];
    if (ready != nullptr) continue;
    std::byte* space =
        MatmulScratch::Impl::at_least(scratch.forms[static_cast<int>(form)], form_bytes(form, m, x.rows));
    if (space == nullptr) return false;
    convert(context, m, form, x, space);
    ready = space;
  }
  const int threads = threads_of(context);
  std::byte* panels =
      MatmulScratch::Impl::at_least(scratch.panels, static_cast<std::size_t>(threads * kScratchBytes));
  if (panels == nullptr) return false;
  run_on(context, threads > 1, [&](int thread) {
    for (const MatmulTarget& target : targets) {
      const Matrix& m = target.weights->impl();
      const Choice choice = choose(m, context, total_rows);
      const PairRange range = pairs_of_thread(m.pairs, threads, thread);
      PanelArgs args = panel_args(m);
      args.pair_begin = range.begin;
      args.pair_end = range.end;
      args.x = forms[static_cast<int>(choice.form)];
      args.rows = x.rows;
      args.y = target.y.row(first_row);
      args.y_stride = target.y.stride;
      args.scratch = panels + thread * kScratchBytes;
      choice.kernel(args);
    }
  });
  return true;
}

}  // namespace

MatmulScratch::MatmulScratch() : impl_(std::make_unique<Impl>()) {}
MatmulScratch::~MatmulScratch() = default;

std::string PackedMatrix::kernel_names(const Context& context) const {
  const Choice decode = choose(*impl_, context, 1);
  const Choice prefill = choose(*impl_, context, 512);
  if (decode.kernel == prefill.kernel) return fmt::format("{} {}", dtype_name(type()), decode.name);
  return fmt::format("{0} {1} decode, {0} {2} prefill", dtype_name(type()), decode.name, prefill.name);
}

void matmul(const Context& context, MatmulScratch& scratch, MatrixView<const float> x,
            std::span<const MatmulTarget> targets) {
  if (x.rows <= 0 || targets.empty()) return;
  std::array<const Matrix*, kMostTargets> matrices;
  assert(targets.size() <= matrices.size());
  for (std::size_t i = 0; i < targets.size(); ++i) matrices[i] = &targets[i].weights->impl();
  const std::int64_t rows_at_once = chunk_rows(context, std::span(matrices).first(targets.size()), x.rows);
  for (std::int64_t row = 0; row < x.rows; row += rows_at_once) {
    const std::int64_t rows = std::min(rows_at_once, x.rows - row);
    if (!multiply_chunk(context, scratch.impl(), {x.row(row), rows, x.columns, x.stride}, targets, row,
                        x.rows)) {
      for (const MatmulTarget& target : targets) fill_nan(target.y);
      return;
    }
  }
}

}  // namespace shoal::kernels
