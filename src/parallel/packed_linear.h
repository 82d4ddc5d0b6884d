// One linear layer, or several that read the same input, packed for this rank: q, k, v; gate, up.
//
// Thread-safety: immutable after packing; apply() belongs to the executor thread of its context.
// Ownership: owns the packed weights, or its share of a packed file; the model's bytes are not needed
//   afterwards.
// Invariants: the parts lie side by side in every row of y, in the order in which they were given, whatever
//   their types. Neighbours of one type are one matrix; the rest are further targets of the same product, so
//   the input is rounded once.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/expected.h"
#include "kernels/matmul.h"
#include "parallel/matrix_supply.h"
#include "tensor/matrix.h"

namespace shoal::parallel {

class PackedLinear {
 public:
  // segment_ends: as kernels::PackedMatrix::pack. At least one part; all have the same columns.
  // supply: where the matrices come from; null: they are packed from memory. Before it has started it is only
  // told of them, and the result has a width and no weights.
  static Expected<PackedLinear> pack(std::span<const kernels::WeightSource> parts,
                                     std::span<const std::int64_t> segment_ends,
                                     const kernels::Context& context, MatrixSupply* supply = nullptr);

  // Columns of y: the rows of all parts.
  std::int64_t width() const { return ends_.back(); }
  std::size_t bytes() const;
  // The one matrix that holds all parts; null where their types differ.
  const kernels::PackedMatrix* whole() const { return matrices_.size() == 1 ? &matrices_.front() : nullptr; }
  // The columns of y that part i fills.
  MatrixView<float> part(MatrixView<float> y, std::size_t i) const;

  // x: [rows, columns of the weights]; y: [rows, width()].
  void apply(const kernels::Context& context, kernels::MatmulScratch& scratch, MatrixView<const float> x,
             MatrixView<float> y) const;

  // One entry for each packed matrix: "q8_0 2048x3072: vnni".
  std::vector<std::string> kernel_names(const kernels::Context& context) const;

 private:
  explicit PackedLinear(std::span<const kernels::WeightSource> parts);

  std::vector<kernels::PackedMatrix> matrices_;
  std::vector<std::int64_t> ends_;  // columns of y where each part ends
};

}  // namespace shoal::parallel
