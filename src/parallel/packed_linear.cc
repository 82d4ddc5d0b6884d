#include "parallel/packed_linear.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace shoal::parallel {

namespace {

using Sources = std::span<const kernels::WeightSource>;

// The parts that become one matrix each: neighbours of one type.
std::vector<Sources> matrices_of(Sources parts) {
  std::vector<Sources> out;
  for (std::size_t first = 0; first < parts.size();) {
    std::size_t last = first + 1;
    while (last < parts.size() && parts[last].target() == parts[first].target()) ++last;
    out.push_back(parts.subspan(first, last - first));
    first = last;
  }
  return out;
}

}  // namespace

PackedLinear::PackedLinear(std::span<const kernels::WeightSource> parts) {
  std::int64_t end = 0;
  for (const auto& part : parts) ends_.push_back(end += part.rows);
}

Expected<PackedLinear> PackedLinear::pack(std::span<const kernels::WeightSource> parts,
                                          std::span<const std::int64_t> segment_ends,
                                          const kernels::Context& context, MatrixSupply* supply) {
  PackedLinear linear(parts);
  if (supply != nullptr && !supply->started()) {
    for (const Sources stacked : matrices_of(parts)) SHOAL_TRY(supply->expect(stacked, segment_ends));
    return linear;
  }
  for (const Sources stacked : matrices_of(parts)) {
    SHOAL_ASSIGN(matrix, supply != nullptr ? supply->take(stacked, segment_ends)
                                           : kernels::PackedMatrix::pack(stacked, segment_ends, context));
    linear.matrices_.push_back(std::move(matrix));
  }
  return linear;
}

std::size_t PackedLinear::bytes() const {
  std::size_t total = 0;
  for (const auto& matrix : matrices_) total += matrix.bytes();
  return total;
}

MatrixView<float> PackedLinear::part(MatrixView<float> y, std::size_t i) const {
  const std::int64_t begin = i == 0 ? 0 : ends_[i - 1];
  return {y.data + begin, y.rows, ends_[i] - begin, y.stride};
}

void PackedLinear::apply(const kernels::Context& context, kernels::MatmulScratch& scratch,
                         MatrixView<const float> x, MatrixView<float> y) const {
  std::array<kernels::MatmulTarget, 3> targets;  // q, k, v: no layer has more parts
  std::size_t used = 0;
  std::int64_t begin = 0;
  for (const auto& matrix : matrices_) {
    targets[used++] = {&matrix, MatrixView<float>(y.data + begin, y.rows, matrix.rows(), y.stride)};
    begin += matrix.rows();
  }
  kernels::matmul(context, scratch, x, std::span(targets).first(used));
}

std::vector<std::string> PackedLinear::kernel_names(const kernels::Context& context) const {
  std::vector<std::string> names;
  for (const auto& matrix : matrices_) {
    names.push_back(fmt::format("{} {}x{}: {}", dtype_name(matrix.type()), matrix.columns(), matrix.rows(),
                                matrix.kernel_names(context)));
  }
  return names;
}

}  // namespace shoal::parallel
