#include "kernels/matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/matmul_crossover.h"
#include "kernels/matmul_kernels.h"
#include "kernels/pack.h"
#include "tensor/buffer.h"
#include "tensor/half.h"

namespace shoal::kernels {
namespace {

using Matrix = PackedMatrix::Impl;

// The form in which a kernel takes activations.
enum class Form : std::uint8_t { kF32, kQ8, kBf16Tiles };
constexpr int kForms = 3;

struct Choice {
  Form form = Form::kF32;
  PanelKernel kernel = nullptr;
  const char* name = "";
};

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

// In strict mode the answer must not depend on `rows`.
Choice choose(const Matrix& m, const Context& context, std::int64_t rows) {
  const bool rounds = is_quantised(m.type) || m.type == DType::kBF16;
  if (context.activations == Activations::kF32 || !rounds) return f32_choice(m.type, context.isa);
  if (!context.strict && context.isa == Isa::kAmx && rows >= tiles_from_rows(m.type)) {
    return {Form::kBf16Tiles, amx_kernel(m.type), "amx bf16"};
  }
  return is_quantised(m.type) ? int8_choice(m.type, context.isa) : f32_choice(m.type, context.isa);
}

std::size_t row_bytes_of(Form form, const Matrix& m) {
  const auto steps = static_cast<std::size_t>(m.steps);
  switch (form) {
    case Form::kF32:
      return steps * kStepInputs * sizeof(float);
    case Form::kQ8:
      return steps * sizeof(Q8Block);
    case Form::kBf16Tiles:
      return steps * kStepInputs * sizeof(Bf16);
  }
  return 0;
}

// Rows that lie together.
constexpr std::int64_t group_rows_of(Form form) { return form == Form::kBf16Tiles ? 16 : kGroupRows; }

// Groups are whole whether there are so many rows or not.
std::size_t form_bytes(Form form, const Matrix& m, std::int64_t rows) {
  const std::int64_t group = group_rows_of(form);
  return row_bytes_of(form, m) * static_cast<std::size_t>((rows + group - 1) / group * group);
}

void copy_rows(const FormArgs& args, std::int64_t step_begin, std::int64_t step_end) {
  for_each_form_step(args, step_begin, step_end, [](const float* x, std::int64_t inputs, std::byte* out) {
    auto* to = reinterpret_cast<float*>(out);
    std::memcpy(to, x, static_cast<std::size_t>(inputs) * sizeof(float));
    std::fill(to + inputs, to + kStepInputs, 0.0F);
  });
}

FormRows converter(Form form, Isa isa) {
  if (form == Form::kBf16Tiles) return round_rows_avx512bf16;
  if (form == Form::kF32) return copy_rows;
  if (isa >= Isa::kAvx512) return quantise_rows_avx512;
  if (isa >= Isa::kAvx2) return quantise_rows_avx2;
  return quantise_rows_scalar;
}

// A row below this is converted where it is: handing it over costs as much as 8 Ki elements take.
constexpr std::int64_t kSerialElements = 8192;
template <typename F>
void run_on(const Context& context, bool parallel, F&& f) {
  if (parallel && context.pool != nullptr) {
    context.pool->run(f);
  } else {
    f(0);
  }
}

}  // namespace

struct MatmulScratch::Impl {
  Buffer forms[kForms];
  Buffer panels;  // kScratchBytes a thread

  // Grows only. Null where memory is out.
  static std::byte* at_least(Buffer& buffer, std::size_t bytes) {
    if (buffer.size() < bytes) {
      auto larger = Buffer::allocate(bytes, "activations");
      if (!larger) return nullptr;
      buffer = std::move(*larger);
    }
    return buffer.data();
  }
};

MatmulScratch::MatmulScratch() : impl_(std::make_unique<Impl>()) {}
MatmulScratch::~MatmulScratch() = default;

namespace {

const RowSegment* row_segments(const Matrix& m) {
  static_assert(sizeof(RowSegment) == sizeof(Segment));
  return reinterpret_cast<const RowSegment*>(m.segments.data());
}

// Each step of a row is brought into its form by one thread alone, so its bits depend on nothing else.
void convert(const Context& context, const Matrix& m, Form form, MatrixView<const float> x, std::byte* out) {
  const std::int64_t group_rows = group_rows_of(form);
  FormArgs args;
  args.x_stride = x.stride;
  args.segments = row_segments(m);
  args.segment_count = static_cast<std::int64_t>(m.segments.size());
  args.row_bytes = static_cast<std::int64_t>(row_bytes_of(form, m)) / m.steps;
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
      rows_to_form(part, step, step_end);
      if (form != Form::kBf16Tiles) continue;
      for (std::int64_t s = step; s < step_end && part.rows < group_rows; ++s) {
        std::memset(part.out + s * args.step_bytes + part.rows * args.row_bytes, 0,
                    static_cast<std::size_t>(args.row_bytes * (group_rows - part.rows)));
      }
    }
  });
}

void fill_nan(std::span<const MatmulTarget> targets) {
  for (const MatmulTarget& target : targets) {
    for (std::int64_t r = 0; r < target.y.rows; ++r) {
      std::fill_n(target.y.row(r), target.y.columns, std::numeric_limits<float>::quiet_NaN());
    }
  }
}

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
  const int threads = context.pool != nullptr ? context.pool->size() : 1;
  std::byte* panels =
      MatmulScratch::Impl::at_least(scratch.panels, static_cast<std::size_t>(threads * kScratchBytes));
  if (panels == nullptr) return false;
  run_on(context, threads > 1, [&](int thread) {
    for (const MatmulTarget& target : targets) {
      const Matrix& m = target.weights->impl();
      const Choice choice = choose(m, context, total_rows);
      const PairRange range = pairs_of_thread(m.pairs, threads, thread);
      PanelArgs args;
      args.blocks = m.data.data();
      args.block_bytes = m.block_bytes;
      args.runs = m.runs.data();
      args.run_count = static_cast<std::int64_t>(m.runs.size());
      args.steps = m.steps;
      args.step_at = m.step_at.data();
      args.header_at = m.header_at.data();
      args.pair_begin = range.begin;
      args.pair_end = range.end;
      args.x = forms[static_cast<int>(choice.form)];
      args.rows = x.rows;
      args.y = target.y.row(first_row);
      args.y_stride = target.y.stride;
      args.columns = m.rows;
      args.scratch = panels + thread * kScratchBytes;
      choice.kernel(args);
    }
  });
  return true;
}

}  // namespace

namespace {

// Rows that pass over the weights together: those whose activations stay in L2, then evened out over the
// passes that takes. Never fewer than 64, or reading weights would cost more than the activations (the
// kernels take such long rows in parts).
std::int64_t chunk_rows(const Context& context, std::span<const MatmulTarget> targets, std::int64_t rows) {
  static_assert(kMostRows == kAmxRows);
  constexpr std::int64_t kFewest = 64;
  std::int64_t most = kMostRows;
  for (const MatmulTarget& target : targets) {
    const Matrix& m = target.weights->impl();
    const Form form = choose(m, context, rows).form;
    if (form == Form::kBf16Tiles) continue;
    most = std::min(most, std::max(kFewest, kPassBytes / static_cast<std::int64_t>(row_bytes_of(form, m))));
  }
  most = most / 32 * 32;
  const std::int64_t passes = (rows + most - 1) / most;
  return ((rows + passes - 1) / passes + 31) / 32 * 32;
}

}  // namespace

std::string PackedMatrix::kernel_names(const Context& context) const {
  const Choice decode = choose(*impl_, context, 1);
  const Choice prefill = choose(*impl_, context, 512);
  if (decode.kernel == prefill.kernel) return fmt::format("{} {}", dtype_name(type()), decode.name);
  return fmt::format("{0} {1} decode, {0} {2} prefill", dtype_name(type()), decode.name, prefill.name);
}

void matmul(const Context& context, MatmulScratch& scratch, MatrixView<const float> x,
            std::span<const MatmulTarget> targets) {
  if (x.rows <= 0 || targets.empty()) return;
  const std::int64_t rows_at_once = chunk_rows(context, targets, x.rows);
  for (std::int64_t row = 0; row < x.rows; row += rows_at_once) {
    const std::int64_t rows = std::min(rows_at_once, x.rows - row);
    if (!multiply_chunk(context, scratch.impl(), {x.row(row), rows, x.columns, x.stride}, targets, row,
                        x.rows)) {
      fill_nan(targets);
      return;
    }
  }
}

}  // namespace shoal::kernels
