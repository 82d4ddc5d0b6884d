// A linear layer whose inputs are split over the ranks of a tensor group: each computes a part of every
// output, and the parts are summed.
//
// In strict mode a rank keeps one matrix for each of its K segments and hands their results out apart, so
// that all ranks add the model's segments in index order: the sum of one rank. Else it adds its own first.
//
// Thread-safety: immutable after packing; apply() belongs to the executor thread of its context.
// Ownership: owns the packed weights.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/expected.h"
#include "kernels/matmul.h"
#include "parallel/packed_linear.h"
#include "parallel/peers.h"
#include "tensor/matrix.h"

namespace shoal::parallel {

class RowParallel {
 public:
  // parts: this rank's columns, whole, or (where summed apart) one source for each segment. segment_ends:
  // of the columns, counted from the first. segment_counts: of every rank of the group. supply: as
  // PackedLinear::pack.
  static Expected<RowParallel> pack(std::span<const kernels::WeightSource> parts,
                                    std::span<const std::int64_t> segment_ends,
                                    std::vector<std::int32_t> segment_counts, const kernels::Context& context,
                                    MatrixSupply* supply = nullptr);
  // Whether pack() wants one source for each segment.
  static bool apart(std::span<const std::int32_t> segment_counts, const kernels::Context& context) {
    return context.strict && segment_counts.size() > 1;
  }

  std::size_t bytes() const;
  // The one matrix that holds all of this rank's columns, whose products sum() completes; null where the
  // segments are summed apart.
  const kernels::PackedMatrix* whole() const { return apart_ ? nullptr : linears_.front().whole(); }
  void sum(MatrixView<float> y, Peers* peers) const;
  std::vector<std::string> kernel_names(const kernels::Context& context) const;

  // x: [rows, this rank's columns]; y: [rows, outputs], summed over the group. peers may be null where the
  // group is one rank.
  void apply(const kernels::Context& context, kernels::MatmulScratch& scratch, MatrixView<const float> x,
             MatrixView<float> y, Peers* peers) const;

 private:
  RowParallel(std::vector<std::int64_t> segment_ends, std::vector<std::int32_t> segment_counts)
      : segment_ends_(std::move(segment_ends)), segment_counts_(std::move(segment_counts)) {}
  void apply_apart(const kernels::Context& context, kernels::MatmulScratch& scratch,
                   MatrixView<const float> x, MatrixView<float> y, Peers& peers) const;

  std::vector<std::int64_t> segment_ends_;
  std::vector<std::int32_t> segment_counts_;
  bool apart_ = false;
  std::vector<PackedLinear> linears_;
};

}  // namespace shoal::parallel
