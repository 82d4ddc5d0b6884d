#include "kernels/dequantise.h"

#include <cstring>

namespace shoal::kernels {

// The order of operations is the contract: see weights_block.h.
void block_to_f32(DType type, const WeightBlock& block, float* out) {
  const float d = f16_to_f32(block.d);
  const float m = f16_to_f32(block.m);
  const int offset = offset_of(type);
  for (int i = 0; i < 32; ++i) {
    const int half = i / 16;
    switch (scheme_of(type)) {
      case Scheme::kScale:
        out[i] = static_cast<float>(block.q[i] - offset) * d;
        break;
      case Scheme::kScaleMin:
        out[i] = static_cast<float>(block.q[i]) * d + m;
        break;
      case Scheme::kSuperMin: {
        const float scale = d * static_cast<float>(block.sc[half]);
        const float minimum = m * static_cast<float>(block.mn[half]);
        out[i] = scale * static_cast<float>(block.q[i]) - minimum;
        break;
      }
      case Scheme::kSuper:
        out[i] = d * static_cast<float>(block.sc[half]) * static_cast<float>(block.q[i] - offset);
        break;
      case Scheme::kTable:
        out[i] = d * static_cast<float>(block.sc[half]) * static_cast<float>(kLevels[block.q[i]]);
        break;
      case Scheme::kNone:
        break;
    }
  }
}

bool can_dequantise(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16 ||
         scheme_of(type) != Scheme::kNone;
}

void dequantise_row(DType type, const std::byte* source, std::int64_t n, float* out) {
  if (type == DType::kF32) {
    std::memcpy(out, source, static_cast<std::size_t>(n) * sizeof(float));
    return;
  }
  if (type == DType::kF16 || type == DType::kBF16) {
    for (std::int64_t i = 0; i < n; ++i) {
      std::uint16_t half;
      std::memcpy(&half, source + 2 * i, sizeof(half));
      out[i] = type == DType::kF16 ? f16_to_f32(half) : bf16_to_f32(half);
    }
    return;
  }
  for (std::int64_t k = 0; k < n; k += 32) block_to_f32(type, read_block(type, source, k), out + k);
}

}  // namespace shoal::kernels
