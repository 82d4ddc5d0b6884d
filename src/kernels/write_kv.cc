#include <algorithm>
#include <cassert>
#include <cstring>
#include <vector>

#include "kernels/attention.h"
#include "kernels/attention_kernels.h"
#include "kernels/parallel_items.h"

namespace shoal::kernels {
namespace {

// A run of a span's rows that falls into one page.
struct PageRun {
  std::int32_t first_row;
  std::int32_t rows;
  std::int32_t first_token;
  std::int32_t slot;
};

// Keys of a run: rows of D / 2 pairs become columns, 32 pairs apart. Stores run along a row of the tile, so
// that each of its lines is filled at once.
template <typename T>
void write_keys(const T* keys, std::int64_t stride, const KvLayout& layout, const PageRun& run, T* tile) {
  for (int d = 0; d < layout.head_dim; d += 2) {
    T* p = tile + layout.k_element(d, run.first_token);
    const T* key = keys + d;
    for (std::int32_t i = 0; i < run.rows; ++i, p += 2, key += stride) std::memcpy(p, key, 2 * sizeof(T));
  }
}

// Values of a run: two tokens side by side; one alone at an end that falls inside a pair.
template <typename T>
void write_values(const T* values, std::int64_t stride, const KvLayout& layout, const PageRun& run, T* tile) {
  for (std::int32_t i = 0; i < run.rows;) {
    const int token = run.first_token + i;
    const T* value = values + i * stride;
    T* p = tile + layout.v_element(0, token);
    if (token % 2 == 0 && i + 1 < run.rows) {
      for (int d = 0; d < layout.head_dim; ++d) {
        const T pair[2] = {value[d], value[d + stride]};
        std::memcpy(p + 2 * d, pair, sizeof(pair));
      }
      i += 2;
    } else {
      for (int d = 0; d < layout.head_dim; ++d) p[2 * d] = value[d];
      i += 1;
    }
  }
}

// Rows of one head rounded to bf16, side by side: at most a page of them, 16 KiB at head size 256.
const Bf16* rounded(const AttentionKernels& kernels, MatrixView<const float> x, std::int64_t column,
                    std::int32_t head_dim, const PageRun& run, std::vector<Bf16>& scratch) {
  scratch.resize(static_cast<std::size_t>(kPageTokens) * static_cast<std::size_t>(head_dim));
  for (std::int32_t i = 0; i < run.rows; ++i) {
    kernels.round_to_bf16(x.row(run.first_row + i) + column, head_dim,
                          scratch.data() + static_cast<std::ptrdiff_t>(i) * head_dim);
  }
  return scratch.data();
}

void write_run(const AttentionKernels& kernels, const KvView& pool, std::int32_t layer, std::int32_t head,
               const PageRun& run, MatrixView<const float> k, MatrixView<const float> v) {
  const KvLayout& layout = pool.layout;
  const std::int64_t column = static_cast<std::int64_t>(head) * layout.head_dim;
  if (layout.dtype == KvDType::kF32) {
    write_keys(k.row(run.first_row) + column, k.stride, layout, run, pool.k<float>(layer, head, run.slot));
    write_values(v.row(run.first_row) + column, v.stride, layout, run, pool.v<float>(layer, head, run.slot));
    return;
  }
  thread_local std::vector<Bf16> scratch;
  write_keys(rounded(kernels, k, column, layout.head_dim, run, scratch), layout.head_dim, layout, run,
             pool.k<Bf16>(layer, head, run.slot));
  write_values(rounded(kernels, v, column, layout.head_dim, run, scratch), layout.head_dim, layout, run,
               pool.v<Bf16>(layer, head, run.slot));
}

}  // namespace

void write_kv(const Context& context, const KvView& pool, const AttentionShape& shape,
              std::span<const AttentionSpan> spans, MatrixView<const float> k, MatrixView<const float> v) {
  thread_local std::vector<PageRun> kept;
  std::vector<PageRun>& runs = kept;
  runs.clear();
  std::int64_t rows = 0;
  for (const AttentionSpan& span : spans) {
    for (std::int32_t row = 0; row < span.rows;) {
      const std::int32_t position = span.start + row;
      const std::int32_t token = position % kPageTokens;
      const std::int32_t n = std::min(span.rows - row, kPageTokens - token);
      const auto page = static_cast<std::size_t>(position / kPageTokens);
      assert(page < span.slots.size() && span.slots[page] != kNoSlot);
      runs.push_back({span.first_row + row, n, token, span.slots[page]});
      row += n;
      rows += n;
    }
  }
  const AttentionKernels& kernels = attention_kernels(context.isa);
  const std::int64_t heads = pool.layout.kv_heads;
  // About 0.4 ns an element of K and of V.
  const std::int64_t work_ns = rows * heads * pool.layout.head_dim * 8 / 10;
  const std::int64_t items = static_cast<std::int64_t>(runs.size()) * heads;
  parallel_items(context, items, 1, work_ns, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const PageRun& run = runs[static_cast<std::size_t>(i / heads)];
      const auto head = static_cast<std::int32_t>(i % heads);
      write_run(kernels, pool, shape.layer, head, run, k, v);
    }
  });
}

}  // namespace shoal::kernels
