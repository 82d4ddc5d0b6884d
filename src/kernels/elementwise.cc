#include "kernels/elementwise.h"

#include <algorithm>
#include <cmath>

#include "kernels/elementwise_kernels.h"
#include "kernels/parallel_items.h"

namespace shoal::kernels {
namespace {

// Rows for one grab: at least 16 KiB of floats, so that dealing (a contended atomic, ~50 ns) stays below 2 %.
std::int64_t grain_of(std::int64_t columns) {
  return std::max<std::int64_t>(1, 4096 / std::max<std::int64_t>(columns, 1));
}

// f(row) for every row; element_ps: rough picoseconds an element costs one thread.
template <typename F>
void for_rows(const Context& context, std::int64_t rows, std::int64_t columns, std::int64_t element_ps,
              F&& f) {
  // 20 times as long without SIMD.
  const std::int64_t factor = context.isa == Isa::kScalar ? 20 : 1;
  parallel_items(context, rows, grain_of(columns), rows * columns * element_ps * factor / 1000,
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t r = begin; r < end; ++r) f(r);
                 });
}

// Cosines and sines of a set of rows. Every layer of a step asks for the same ones: they are kept from call
// to call, per executor thread, two sets because a model may have two ropes (local and global layers).
class RopeTables {
 public:
  struct Table {
    std::vector<float> inverse_frequency;
    float magnitude = 0;
    std::vector<std::int32_t> positions;
    std::vector<float> cosine;  // [rows][pairs]
    std::vector<float> sine;
  };

  const Table& of(const Context& context, const Rope& rope, std::span<const std::int32_t> positions) {
    for (std::size_t i = 0; i < 2; ++i) {
      if (holds(tables_[i], rope, positions)) {
        oldest_ = 1 - i;
        return tables_[i];
      }
    }
    Table& table = tables_[oldest_];
    oldest_ = 1 - oldest_;
    fill(context, rope, positions, table);
    return table;
  }

 private:
  static bool holds(const Table& table, const Rope& rope, std::span<const std::int32_t> positions) {
    return table.magnitude == rope.magnitude && table.inverse_frequency == rope.inverse_frequency &&
           std::equal(positions.begin(), positions.end(), table.positions.begin(), table.positions.end());
  }

  static void fill(const Context& context, const Rope& rope, std::span<const std::int32_t> positions,
                   Table& table) {
    const std::size_t pairs = rope.inverse_frequency.size();
    table.inverse_frequency = rope.inverse_frequency;
    table.magnitude = rope.magnitude;
    table.positions.assign(positions.begin(), positions.end());
    table.cosine.resize(positions.size() * pairs);
    table.sine.resize(positions.size() * pairs);
    const auto rows = static_cast<std::int64_t>(positions.size());
    // 40 ns a pair.
    parallel_items(context, rows, 4, rows * static_cast<std::int64_t>(pairs) * 40,
                   [&](std::int64_t begin, std::int64_t end) {
                     for (auto r = static_cast<std::size_t>(begin); r < static_cast<std::size_t>(end); ++r) {
                       fill_row(rope, positions[r], table.cosine.data() + r * pairs,
                                table.sine.data() + r * pairs);
                     }
                   });
  }

  // In double: at position 1,000,000 a float angle would be wrong by 0.03 radians.
  static void fill_row(const Rope& rope, std::int32_t position, float* cosine, float* sine) {
    for (std::size_t i = 0; i < rope.inverse_frequency.size(); ++i) {
      const double angle = static_cast<double>(position) * static_cast<double>(rope.inverse_frequency[i]);
      cosine[i] = static_cast<float>(std::cos(angle) * static_cast<double>(rope.magnitude));
      sine[i] = static_cast<float>(std::sin(angle) * static_cast<double>(rope.magnitude));
    }
  }

  Table tables_[2];
  std::size_t oldest_ = 0;
};

}  // namespace

const ElementwiseKernels& elementwise_kernels(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kScalar:
      return kElementwiseScalar;
    case Isa::kAvx2:
      return kElementwiseAvx2;
    case Isa::kAvx512:
    case Isa::kAmx:
      return kElementwiseAvx512;
  }
#endif
  (void)isa;
  return kElementwiseScalar;
}

void rms_norm(const Context& context, MatrixView<const float> x, std::span<const float> weight, float eps,
              MatrixView<float> y) {
  const auto f = elementwise_kernels(context.isa).rms_norm_row;
  for_rows(context, x.rows, x.columns, 150,
           [&](std::int64_t r) { f(x.row(r), weight.data(), x.columns, eps, y.row(r)); });
}

void add_rms_norm(const Context& context, MatrixView<float> x, MatrixView<const float> delta,
                  std::span<const float> weight, float eps, MatrixView<float> y) {
  const auto f = elementwise_kernels(context.isa).add_rms_norm_row;
  for_rows(context, x.rows, x.columns, 250,
           [&](std::int64_t r) { f(x.row(r), delta.row(r), weight.data(), x.columns, eps, y.row(r)); });
}

void add(const Context& context, MatrixView<float> x, MatrixView<const float> delta) {
  const auto f = elementwise_kernels(context.isa).add_row;
  for_rows(context, x.rows, x.columns, 150, [&](std::int64_t r) { f(x.row(r), delta.row(r), x.columns); });
}

void add_bias(const Context& context, MatrixView<float> x, std::span<const float> bias) {
  const auto f = elementwise_kernels(context.isa).add_row;
  for_rows(context, x.rows, x.columns, 100, [&](std::int64_t r) { f(x.row(r), bias.data(), x.columns); });
}

void head_rms_norm(const Context& context, MatrixView<float> x, std::int32_t head_dim,
                   std::span<const float> weight, float eps) {
  const auto f = elementwise_kernels(context.isa).rms_norm_row;
  for_rows(context, x.rows, x.columns, 250, [&](std::int64_t r) {
    for (std::int64_t c = 0; c + head_dim <= x.columns; c += head_dim) {
      f(x.row(r) + c, weight.data(), head_dim, eps, x.row(r) + c);
    }
  });
}

void apply_rope(const Context& context, const Rope& rope, MatrixView<float> x, std::int32_t head_dim,
                std::span<const std::int32_t> positions) {
  const std::size_t pairs = rope.inverse_frequency.size();
  if (x.rows == 0 || pairs == 0) return;
  thread_local RopeTables tables;
  const RopeTables::Table& table =
      tables.of(context, rope, positions.first(static_cast<std::size_t>(x.rows)));
  const ElementwiseKernels& kernels = elementwise_kernels(context.isa);
  const auto f = rope.adjacent_pairs ? kernels.rope_row_adjacent : kernels.rope_row_halves;
  for_rows(context, x.rows, x.columns, 200, [&](std::int64_t r) {
    const std::size_t offset = static_cast<std::size_t>(r) * pairs;
    f(x.row(r), x.columns / head_dim, head_dim, static_cast<std::int32_t>(pairs),
      table.cosine.data() + offset, table.sine.data() + offset);
  });
}

void gated_activation(const Context& context, GatedActivation kind, MatrixView<const float> gate,
                      MatrixView<const float> up, MatrixView<float> y) {
  const ElementwiseKernels& kernels = elementwise_kernels(context.isa);
  const auto f = kind == GatedActivation::kSilu ? kernels.silu_row : kernels.gelu_tanh_row;
  for_rows(context, gate.rows, gate.columns, 600,
           [&](std::int64_t r) { f(gate.row(r), up.row(r), gate.columns, y.row(r)); });
}

}  // namespace shoal::kernels
