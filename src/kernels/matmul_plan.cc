#include "kernels/matmul_plan.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/matmul_crossover.h"
#include "tensor/half.h"

namespace shoal::kernels {
namespace {

using Matrix = PackedMatrix::Impl;

Choice f32_choice(DType type, Isa isa) {
  if (isa >= Isa::kAvx512) return {Form::kF32, f32_kernel_avx512(type), "f32 avx512"};
  if (isa >= Isa::kAvx2) return {Form::kF32, f32_kernel_avx2(type), "f32 avx2"};
  return {Form::kF32, f32_kernel_scalar(type), "f32 scalar"};
}

Choice int8_choice(DType type, Isa isa) {
  if (isa >= Isa::kAvx512) return {Form::kQ8, int8_kernel_avx512(type), "int8 vnni"};
  if (isa >= Isa::kAvx2) return {Form::kQ8, int8_kernel_avx2(type), "int8 avx2"};
  return {Form::kQ8, int8_kernel_scalar(type), "int8 scalar"};
}

void copy_rows(const FormArgs& args, std::int64_t step_begin, std::int64_t step_end) {
  for_each_form_step(args, step_begin, step_end, [](const float* x, std::int64_t inputs, std::byte* out) {
    auto* to = reinterpret_cast<float*>(out);
    std::memcpy(to, x, static_cast<std::size_t>(inputs) * sizeof(float));
    std::fill(to + inputs, to + kStepInputs, 0.0F);
  });
}

const RowSegment* row_segments(const Matrix& m) {
  static_assert(sizeof(RowSegment) == sizeof(Segment));
  return reinterpret_cast<const RowSegment*>(m.segments.data());
}

// A row below this is converted where it is: handing it over costs as much as 8 Ki elements take.
constexpr std::int64_t kSerialElements = 8192;
}  // namespace

// In strict mode the answer must not depend on `rows`.
Choice choose(const Matrix& m, const Context& context, std::int64_t rows) {
  const bool rounds = is_quantised(m.type) || m.type == DType::kBF16;
  if (context.activations == Activations::kF32 || !rounds) return f32_choice(m.type, context.isa);
  if (!context.strict && context.isa == Isa::kAmx && rows >= tiles_from_rows(m.type)) {
    return {Form::kBf16Tiles, amx_kernel(m.type), "amx bf16"};
  }
  return is_quantised(m.type) ? int8_choice(m.type, context.isa) : f32_choice(m.type, context.isa);
}

std::int64_t step_row_bytes_of(Form form) {
  switch (form) {
    case Form::kF32:
      return kStepInputs * static_cast<std::int64_t>(sizeof(float));
    case Form::kQ8:
      return static_cast<std::int64_t>(sizeof(Q8Block));
    case Form::kBf16Tiles:
      return kStepInputs * static_cast<std::int64_t>(sizeof(Bf16));
  }
  return 0;
}

std::int64_t group_rows_of(Form form) { return form == Form::kBf16Tiles ? 16 : kGroupRows; }

std::size_t form_bytes(Form form, const Matrix& m, std::int64_t rows) {
  const std::int64_t group = group_rows_of(form);
  return static_cast<std::size_t>(step_row_bytes_of(form) * m.steps * ((rows + group - 1) / group * group));
}

FormRows converter(Form form, Isa isa) {
  if (form == Form::kBf16Tiles) return round_rows_avx512bf16;
  if (form == Form::kF32) return copy_rows;
  if (isa >= Isa::kAvx512) return quantise_rows_avx512;
  if (isa >= Isa::kAvx2) return quantise_rows_avx2;
  return quantise_rows_scalar;
}

void convert_group(Form form, FormRows rows_to_form, const FormArgs& args, std::int64_t step_begin,
                   std::int64_t step_end) {
  rows_to_form(args, step_begin, step_end);
  const std::int64_t missing = group_rows_of(form) - args.rows;
  if (form != Form::kBf16Tiles || missing == 0) return;
  for (std::int64_t s = step_begin; s < step_end; ++s) {
    std::memset(args.out + s * args.step_bytes + args.rows * args.row_bytes, 0,
                static_cast<std::size_t>(args.row_bytes * missing));
  }
}

// Each step of a row is brought into its form by one thread alone, so its bits depend on nothing else.
void convert(const Context& context, const Matrix& m, Form form, MatrixView<const float> x, std::byte* out) {
  const std::int64_t group_rows = group_rows_of(form);
  FormArgs args;
  args.x_stride = x.stride;
  args.segments = row_segments(m);
  args.segment_count = static_cast<std::int64_t>(m.segments.size());
  args.row_bytes = step_row_bytes_of(form);
  args.step_bytes = group_rows * args.row_bytes;
  const std::int64_t groups = (x.rows + group_rows - 1) / group_rows;
  // Few rows are shared out by steps as well.
  constexpr std::int64_t kSlice = 16;
  const std::int64_t slices = (m.steps + kSlice - 1) / kSlice;
  const FormRows rows_to_form = converter(form, context.isa);
  const int threads =
      context.pool != nullptr && x.rows * x.columns > kSerialElements ? context.pool->size() : 1;
  run_on(context, threads > 1, [&](int thread) {
    const PairRange range = pairs_of_thread(groups * slices, threads, thread);
    for (std::int64_t item = range.begin; item < range.end; ++item) {
      const std::int64_t group = item / slices;
      const std::int64_t step = item % slices * kSlice;
      const std::int64_t step_end = std::min(step + kSlice, m.steps);
      FormArgs part = args;
      part.x = x.row(group * group_rows);
      part.rows = std::min(group_rows, x.rows - group * group_rows);
      part.out = out + group * m.steps * args.step_bytes;
      convert_group(form, rows_to_form, part, step, step_end);
    }
  });
}

std::int64_t chunk_rows(const Context& context, std::span<const Matrix* const> matrices, std::int64_t rows) {
  static_assert(kMostRows == kAmxRows);
  constexpr std::int64_t kFewest = 64;
  std::int64_t most = kMostRows;
  for (const Matrix* m : matrices) {
    const Form form = choose(*m, context, rows).form;
    if (form == Form::kBf16Tiles) continue;
    most = std::min(most, std::max(kFewest, kPassBytes / (step_row_bytes_of(form) * m->steps)));
  }
  most = most / 32 * 32;
  const std::int64_t passes = (rows + most - 1) / most;
  return ((rows + passes - 1) / passes + 31) / 32 * 32;
}

void fill_nan(MatrixView<float> y) {
  for (std::int64_t r = 0; r < y.rows; ++r) {
    std::fill_n(y.row(r), y.columns, std::numeric_limits<float>::quiet_NaN());
  }
}

PanelArgs panel_args(const Matrix& m) {
  PanelArgs args;
  args.blocks = m.data.data();
  args.block_bytes = m.block_bytes;
  args.runs = m.runs.data();
  args.run_count = static_cast<std::int64_t>(m.runs.size());
  args.steps = m.steps;
  args.step_at = m.step_at.data();
  args.header_at = m.header_at.data();
  args.columns = m.rows;
  return args;
}

}  // namespace shoal::kernels
