#include "parallel/row_parallel.h"

#include <algorithm>
#include <utility>

namespace shoal::parallel {
namespace {

// Of the parts of the rows that are summed together: bounds scratch, and stays in L2 and L3 on its way.
constexpr std::int64_t kPartBytes = std::int64_t{4} << 20;

}  // namespace

Expected<RowParallel> RowParallel::pack(std::span<const kernels::WeightSource> parts,
                                        std::span<const std::int64_t> segment_ends,
                                        std::vector<std::int32_t> segment_counts,
                                        const kernels::Context& context, MatrixSupply* supply) {
  RowParallel layer({segment_ends.begin(), segment_ends.end()}, std::move(segment_counts));
  layer.apart_ = apart(layer.segment_counts_, context);
  for (const kernels::WeightSource& part : parts) {
    const std::int64_t whole[] = {part.columns};
    SHOAL_ASSIGN(linear,
                 PackedLinear::pack(std::span(&part, 1),
                                    layer.apart_ ? std::span<const std::int64_t>(whole) : segment_ends,
                                    context, supply));
    layer.linears_.push_back(std::move(linear));
  }
  return layer;
}

std::size_t RowParallel::bytes() const {
  std::size_t total = 0;
  for (const PackedLinear& linear : linears_) total += linear.bytes();
  return total;
}

std::vector<std::string> RowParallel::kernel_names(const kernels::Context& context) const {
  return linears_.front().kernel_names(context);
}

void RowParallel::apply(const kernels::Context& context, kernels::MatmulScratch& scratch,
                        MatrixView<const float> x, MatrixView<float> y, Peers* peers) const {
  if (apart_) return apply_apart(context, scratch, x, y, *peers);
  linears_.front().apply(context, scratch, x, y);
  sum(y, peers);
}

void RowParallel::sum(MatrixView<float> y, Peers* peers) const {
  if (segment_counts_.size() > 1) peers->sum(y);
}

void RowParallel::apply_apart(const kernels::Context& context, kernels::MatmulScratch& scratch,
                              MatrixView<const float> x, MatrixView<float> y, Peers& peers) const {
  const auto parts = static_cast<std::int64_t>(linears_.size());
  const std::int32_t most = *std::max_element(segment_counts_.begin(), segment_counts_.end());
  // Alike on all ranks: sizes of messages follow from it.
  const std::int64_t rows_at_once =
      std::max<std::int64_t>(kPartBytes / (y.stride * static_cast<std::int64_t>(sizeof(float)) * most), 1);
  auto space = peers.part_scratch(parts * std::min(rows_at_once, y.rows) * y.stride);
  if (!space) return;
  std::vector<const float*> pointers;
  for (std::int64_t row = 0; row < y.rows; row += rows_at_once) {
    const std::int64_t rows = std::min(rows_at_once, y.rows - row);
    pointers.clear();
    std::int64_t column = 0;
    for (std::int64_t p = 0; p < parts; ++p) {
      const std::int64_t end = segment_ends_[static_cast<std::size_t>(p)];
      float* to = *space + p * rows * y.stride;
      linears_[static_cast<std::size_t>(p)].apply(context, scratch,
                                                  {x.row(row) + column, rows, end - column, x.stride},
                                                  MatrixView<float>(to, rows, y.columns, y.stride));
      pointers.push_back(to);
      column = end;
    }
    peers.sum_parts(segment_counts_, pointers, {y.row(row), rows, y.columns, y.stride});
  }
}

}  // namespace shoal::parallel
