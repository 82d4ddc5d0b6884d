// Partial results of attention: folding them, and the form in which they travel.

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/attention.h"
#include "kernels/attention_kernels.h"
#include "kernels/parallel_items.h"

namespace shoal::kernels {
namespace {

// f(row) for all rows. About 0.2 ns a value.
template <typename F>
void each_row(const Context& context, const AttentionShape& shape, std::int64_t rows, F&& f) {
  const std::int64_t ns = rows * state_width(shape.query_heads, shape.head_dim) / 5;
  parallel_items(context, rows, 4, ns, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) f(row);
  });
}

AttentionState state_of(const AttentionShape& shape, const float* row) {
  return state_at(const_cast<float*>(row), shape.query_heads);
}

}  // namespace

void clear_attention_states(const AttentionShape& shape, MatrixView<float> states) {
  for (std::int64_t row = 0; row < states.rows; ++row) {
    const AttentionState state = state_of(shape, states.row(row));
    std::fill_n(state.m, shape.query_heads, -std::numeric_limits<float>::infinity());
    std::fill_n(state.l, static_cast<std::int64_t>(shape.query_heads) * (shape.head_dim + 1), 0.0F);
  }
}

void fold_attention_states(const Context& context, const AttentionShape& shape, MatrixView<float> into,
                           MatrixView<const float> from) {
  const AttentionKernels& kernels = attention_kernels(context.isa);
  each_row(context, shape, into.rows, [&](std::int64_t row) {
    kernels.fold_states(shape.query_heads, shape.head_dim, state_of(shape, into.row(row)),
                        state_of(shape, from.row(row)));
  });
}

void finish_attention_states(const Context& context, const AttentionShape& shape,
                             MatrixView<const float> states, MatrixView<float> out) {
  each_row(context, shape, states.rows, [&](std::int64_t row) {
    const AttentionState state = state_of(shape, states.row(row));
    for (std::int32_t head = 0; head < shape.query_heads; ++head) {
      const std::int64_t at = static_cast<std::int64_t>(head) * shape.head_dim;
      normalise_row(state.o + at, state.l[head], shape.head_dim, out.row(row) + at);
    }
  });
}

void pack_attention_states(const Context& context, const AttentionShape& shape,
                           MatrixView<const float> states, MatrixView<float> packed) {
  each_row(context, shape, states.rows, [&](std::int64_t row) {
    const AttentionState state = state_of(shape, states.row(row));
    float* to = packed.row(row);
    for (std::int32_t head = 0; head < shape.query_heads; ++head) {
      const float l = state.l[head];
      to[head] = l == 0 ? -std::numeric_limits<float>::infinity() : state.m[head] + std::log2(l);
      const std::int64_t at = static_cast<std::int64_t>(head) * shape.head_dim;
      normalise_row(state.o + at, l, shape.head_dim, to + shape.query_heads + at);
    }
  });
}

void unpack_attention_states(const Context& context, const AttentionShape& shape,
                             MatrixView<const float> packed, MatrixView<float> states) {
  each_row(context, shape, packed.rows, [&](std::int64_t row) {
    const AttentionState state = state_of(shape, states.row(row));
    const float* from = packed.row(row);
    for (std::int32_t head = 0; head < shape.query_heads; ++head) {
      state.m[head] = from[head];
      // NaN is not nothing.
      state.l[head] = from[head] == -std::numeric_limits<float>::infinity() ? 0.0F : 1.0F;
    }
    std::copy_n(from + shape.query_heads, static_cast<std::int64_t>(shape.query_heads) * shape.head_dim,
                state.o);
  });
}

}  // namespace shoal::kernels
