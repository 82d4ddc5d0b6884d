#include "kernels/attention_reference.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace shoal::kernels {
namespace {

class Reader {
 public:
  Reader(const KvView& pool, std::int32_t layer, std::int32_t head, std::span<const std::int32_t> slots)
      : pool_(pool), layer_(layer), head_(head), slots_(slots) {}

  double key(std::int32_t position, std::int32_t dim) const {
    return at(pool_.layout.k_tile(layer_, head_, slot(position)),
              pool_.layout.k_element(dim, position % kPageTokens));
  }
  double value(std::int32_t position, std::int32_t dim) const {
    return at(pool_.layout.v_tile(layer_, head_, slot(position)),
              pool_.layout.v_element(dim, position % kPageTokens));
  }

 private:
  std::int32_t slot(std::int32_t position) const {
    return slots_[static_cast<std::size_t>(position / kPageTokens)];
  }
  double at(std::size_t tile, std::size_t element) const {
    const std::byte* p = pool_.base + tile;
    if (pool_.layout.dtype == KvDType::kF32) return reinterpret_cast<const float*>(p)[element];
    return bf16_to_f32(reinterpret_cast<const Bf16*>(p)[element]);
  }

  const KvView& pool_;
  std::int32_t layer_;
  std::int32_t head_;
  std::span<const std::int32_t> slots_;
};

void one_row(const AttentionShape& shape, const Reader& reader, std::int32_t position, const float* q,
             float* out) {
  const std::int32_t d = shape.head_dim;
  const std::int32_t begin = shape.window > 0 ? std::max(0, position - shape.window + 1) : 0;
  std::vector<double> weights;
  for (std::int32_t key = begin; key <= position; ++key) {
    double score = 0;
    for (std::int32_t i = 0; i < d; ++i) score += static_cast<double>(q[i]) * reader.key(key, i);
    score *= static_cast<double>(shape.scale);
    if (shape.softcap > 0) {
      const double cap = static_cast<double>(shape.softcap);
      score = cap * std::tanh(score / cap);
    }
    weights.push_back(score);
  }
  const double best = *std::max_element(weights.begin(), weights.end());
  double sum = 0;
  for (double& w : weights) sum += w = std::exp(w - best);
  for (std::int32_t i = 0; i < d; ++i) {
    double o = 0;
    for (std::size_t j = 0; j < weights.size(); ++j) {
      o += weights[j] * reader.value(begin + static_cast<std::int32_t>(j), i);
    }
    out[i] = static_cast<float>(o / sum);
  }
}

}  // namespace

void attention_reference(const KvView& pool, const AttentionShape& shape,
                         std::span<const AttentionSpan> spans, MatrixView<const float> q,
                         MatrixView<float> out) {
  for (const AttentionSpan& span : spans) {
    for (std::int32_t head = 0; head < shape.query_heads; ++head) {
      const Reader reader(pool, shape.layer, shape.kv_head_of[static_cast<std::size_t>(head)], span.slots);
      for (std::int32_t r = 0; r < span.rows; ++r) {
        const std::int64_t offset = static_cast<std::int64_t>(head) * shape.head_dim;
        one_row(shape, reader, span.start + r, q.row(span.first_row + r) + offset,
                out.row(span.first_row + r) + offset);
      }
    }
  }
}

}  // namespace shoal::kernels
