// What a product does before and around the kernels: which kernel, which form its activations take, how many
// rows at once. Shared by matmul.cc and feed_forward.cc.
//
// Thread-safety: pure functions, but for convert(), which runs on its context's pool.
// Invariants: in strict mode the kernel depends on the matrix and the ISA alone.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "kernels/matmul.h"
#include "kernels/matmul_kernels.h"
#include "kernels/pack.h"
#include "tensor/buffer.h"

namespace shoal::kernels {

// The form in which a kernel takes activations.
enum class Form : std::uint8_t { kF32, kQ8, kBf16Tiles };
inline constexpr int kForms = 3;

struct Choice {
  Form form = Form::kF32;
  PanelKernel kernel = nullptr;
  const char* name = "";
};

struct MatmulScratch::Impl {
  Buffer forms[kForms];
  Buffer panels;  // kScratchBytes a thread
  Buffer inner;   // between two products (feed_forward.h), in the second one's form
  Buffer gated;   // gate and up of a few columns, for each thread

  // Room for `bytes`; it only grows. Null where memory is out.
  static std::byte* at_least(Buffer& buffer, std::size_t bytes) {
    if (buffer.size() < bytes) {
      auto larger = Buffer::allocate(bytes, "activations");
      if (!larger) return nullptr;
      buffer = std::move(*larger);
    }
    return buffer.data();
  }
};

// rows: of the whole product, of which a chunk may be at hand.
Choice choose(const PackedMatrix::Impl& m, const Context& context, std::int64_t rows);

// Rows that pass over the weights of all matrices together: those whose activations stay in L2, then evened
// out over the passes that takes, a multiple of 32. Never fewer than 64, or reading weights would cost more
// than the activations (the kernels take such long rows in parts).
std::int64_t chunk_rows(const Context& context, std::span<const PackedMatrix::Impl* const> matrices,
                        std::int64_t rows);

// Rows that lie together in a form, and the bytes of one row of one step.
std::int64_t group_rows_of(Form form);
std::int64_t step_row_bytes_of(Form form);
// Of all steps of `rows` rows. Groups are whole whether there are so many rows or not.
std::size_t form_bytes(Form form, const PackedMatrix::Impl& m, std::int64_t rows);

FormRows converter(Form form, Isa isa);
// One group of rows, steps [step_begin, step_end): surplus rows of tiles become zeros. args.rows: at most
// group_rows_of(form).
void convert_group(Form form, FormRows rows_to_form, const FormArgs& args, std::int64_t step_begin,
                   std::int64_t step_end);
// x, whose columns are m's, to `out`.
void convert(const Context& context, const PackedMatrix::Impl& m, Form form, MatrixView<const float> x,
             std::byte* out);

// What a product gives where memory is out: wrong where everybody sees it.
void fill_nan(MatrixView<float> y);

// Everything of a call that depends on the matrix alone.
PanelArgs panel_args(const PackedMatrix::Impl& m);

// On every thread, or here as thread 0.
template <typename F>
void run_on(const Context& context, bool parallel, F&& f) {
  if (parallel && context.pool != nullptr) {
    context.pool->run(f);
  } else {
    f(0);
  }
}
inline int threads_of(const Context& context) { return context.pool != nullptr ? context.pool->size() : 1; }

}  // namespace shoal::kernels
