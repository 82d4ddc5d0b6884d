#include "kernels/matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/matmul_kernels.h"
#include "kernels/pack.h"
#include "tensor/buffer.h"

namespace shoal::kernels {
namespace {

using Matrix = PackedMatrix::Impl;

// The form in which a kernel takes activations.
enum class Form : std::uint8_t { kF32, kQ8 };
constexpr int kForms = 2;

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
  (void)rows;
  if (is_quantised(m.type) && context.activations == Activations::kAuto)
    return int8_choice(m.type, context.isa);
  return f32_choice(m.type, context.isa);
}

std::size_t row_bytes_of(Form form, const Matrix& m) {
  const auto steps = static_cast<std::size_t>(m.steps);
  switch (form) {
    case Form::kF32:
      return steps * kStepInputs * sizeof(float);
    case Form::kQ8:
      return steps * sizeof(Q8Block);
  }
  return 0;
}

void convert_f32_row(const Matrix& m, const float* x, float* out) {
  for (const Segment& segment : m.segments) {
    const std::int64_t n = segment.end - segment.begin;
    float* to = out + segment.first_step * kStepInputs;
    std::memcpy(to, x + segment.begin, static_cast<std::size_t>(n) * sizeof(float));
    std::fill(to + n, to + (n + kStepInputs - 1) / kStepInputs * kStepInputs, 0.0F);
  }
}

QuantiseRow quantiser(Isa isa) {
  if (isa >= Isa::kAvx512) return quantise_row_avx512;
  if (isa >= Isa::kAvx2) return quantise_row_avx2;
  return quantise_row_scalar;
}

// A row below this is converted where it is: handing it over costs as much as 8 Ki elements take.
constexpr std::int64_t kSerialElements = 8192;
// Rows that pass over the weights together: their activations, at most 1 MiB, stay in L2 beside the panel.
constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
constexpr std::int64_t kChunkRows = 256;

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

  // Grows only. Null where memory is out.
  std::byte* form(Form which, std::size_t bytes) {
    Buffer& buffer = forms[static_cast<int>(which)];
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

// Brings rows of x into `form`. Each row is converted by one thread alone, so its bits depend on nothing
// else.
void convert(const Context& context, const Matrix& m, Form form, MatrixView<const float> x, std::byte* out) {
  const std::size_t stride = row_bytes_of(form, m);
  const QuantiseRow quantise = quantiser(context.isa);
  const int threads =
      context.pool != nullptr && x.rows * x.columns > kSerialElements ? context.pool->size() : 1;
  static_assert(sizeof(RowSegment) == sizeof(Segment));
  const auto* segments = reinterpret_cast<const RowSegment*>(m.segments.data());
  run_on(context, threads > 1, [&](int thread) {
    const PairRange range = pairs_of_thread(x.rows, threads, thread);
    for (std::int64_t r = range.begin; r < range.end; ++r) {
      std::byte* to = out + static_cast<std::size_t>(r) * stride;
      if (form == Form::kF32) {
        convert_f32_row(m, x.row(r), reinterpret_cast<float*>(to));
      } else {
        quantise(x.row(r), segments, static_cast<std::int64_t>(m.segments.size()),
                 reinterpret_cast<Q8Block*>(to));
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
    std::byte* space = scratch.form(form, row_bytes_of(form, m) * static_cast<std::size_t>(x.rows));
    if (space == nullptr) return false;
    convert(context, m, form, x, space);
    ready = space;
  }
  const int threads = context.pool != nullptr ? context.pool->size() : 1;
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
      args.pair_begin = range.begin;
      args.pair_end = range.end;
      args.x = forms[static_cast<int>(choice.form)];
      args.rows = x.rows;
      args.y = target.y.row(first_row);
      args.y_stride = target.y.stride;
      args.columns = m.rows;
      choice.kernel(args);
    }
  });
  return true;
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
  const std::size_t row_bytes = row_bytes_of(Form::kF32, targets.front().weights->impl());
  const std::int64_t rows_at_once =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(kChunkBytes / row_bytes) / 8 * 8, 32, kChunkRows);
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
