#include <algorithm>
#include <cassert>
#include <vector>

#include "kernels/attention.h"
#include "kernels/attention_kernels.h"
#include "kernels/parallel_items.h"

namespace shoal::kernels {
namespace {

// One token's key into its page: D / 2 pairs, 32 pairs apart.
template <typename T>
void write_key(const T* key, const KvLayout& layout, int token, T* tile) {
  for (int d = 0; d < layout.head_dim; d += 2) {
    T* p = tile + layout.k_element(d, token);
    p[0] = key[d];
    p[1] = key[d + 1];
  }
}

template <typename T>
void write_value(const T* value, const KvLayout& layout, int token, T* tile) {
  T* p = tile + layout.v_element(0, token);
  for (int d = 0; d < layout.head_dim; ++d) p[2 * d] = value[d];
}

// A run of a span's rows that falls into one page.
struct PageRun {
  std::int32_t first_row;
  std::int32_t rows;
  std::int32_t first_token;
  std::int32_t slot;
};

template <typename T>
void write_run(const AttentionKernels& kernels, const KvView& pool, std::int32_t layer, std::int32_t head,
               const PageRun& run, MatrixView<const float> k, MatrixView<const float> v) {
  const KvLayout& layout = pool.layout;
  const std::int64_t column = static_cast<std::int64_t>(head) * layout.head_dim;
  T* k_tile = pool.k<T>(layer, head, run.slot);
  T* v_tile = pool.v<T>(layer, head, run.slot);
  thread_local std::vector<Bf16> rounded;
  for (std::int32_t i = 0; i < run.rows; ++i) {
    const float* key = k.row(run.first_row + i) + column;
    const float* value = v.row(run.first_row + i) + column;
    const int token = run.first_token + i;
    if constexpr (std::is_same_v<T, Bf16>) {
      rounded.resize(2 * static_cast<std::size_t>(layout.head_dim));
      kernels.round_to_bf16(key, layout.head_dim, rounded.data());
      kernels.round_to_bf16(value, layout.head_dim, rounded.data() + layout.head_dim);
      write_key(rounded.data(), layout, token, k_tile);
      write_value(rounded.data() + layout.head_dim, layout, token, v_tile);
    } else {
      write_key(key, layout, token, k_tile);
      write_value(value, layout, token, v_tile);
    }
  }
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
  // About 1 ns an element: the stores are scattered.
  const std::int64_t work_ns = rows * heads * pool.layout.head_dim * 2;
  const std::int64_t items = static_cast<std::int64_t>(runs.size()) * heads;
  parallel_items(context, items, 1, work_ns, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const PageRun& run = runs[static_cast<std::size_t>(i / heads)];
      const auto head = static_cast<std::int32_t>(i % heads);
      if (pool.layout.dtype == KvDType::kBf16) {
        write_run<Bf16>(kernels, pool, shape.layer, head, run, k, v);
      } else {
        write_run<float>(kernels, pool, shape.layer, head, run, k, v);
      }
    }
  });
}

}  // namespace shoal::kernels
