// Thirty-two neighbouring weights of a row as the file's quantised formats hold them, taken apart: what
// packing and dequantisation share.
//
// Thread-safety: pure functions.
// Invariants: the value of element i, computed in f32 in exactly this order, is what ggml's reference gives:
//   kScale     (q - offset) * d                           Q4_0, Q5_0, Q8_0
//   kScaleMin  q * d + m                                  Q4_1, Q5_1
//   kSuperMin  (d * sc[h]) * q - (m * mn[h])              Q2_K, Q4_K, Q5_K
//   kSuper     (d * sc[h]) * (q - offset)                 Q3_K, Q6_K
//   kTable     (d * sc[0]) * level(q)                     IQ4_NL (without the factor), IQ4_XS
//   where h = i / 16: formats with one factor per 32 give it twice.

#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/half.h"

namespace shoal::kernels {

enum class Scheme : std::uint8_t { kNone, kScale, kScaleMin, kSuperMin, kSuper, kTable };

constexpr Scheme scheme_of(DType type) {
  switch (type) {
    case DType::kQ4_0:
    case DType::kQ5_0:
    case DType::kQ8_0:
      return Scheme::kScale;
    case DType::kQ4_1:
    case DType::kQ5_1:
      return Scheme::kScaleMin;
    case DType::kQ2_K:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return Scheme::kSuperMin;
    case DType::kQ3_K:
    case DType::kQ6_K:
      return Scheme::kSuper;
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
      return Scheme::kTable;
    default:
      return Scheme::kNone;
  }
}

// Codes are stored unsigned; this is the code of zero, always a power of two. 0 where codes have a minimum.
constexpr int offset_of(DType type) {
  switch (type) {
    case DType::kQ3_K:
      return 4;
    case DType::kQ4_0:
      return 8;
    case DType::kQ5_0:
      return 16;
    case DType::kQ6_K:
      return 32;
    case DType::kQ8_0:
      return 128;
    default:
      return 0;
  }
}

// The sixteen levels of the 4-bit non-linear formats.
inline constexpr std::int8_t kLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                            1,    13,   25,  38,  53,  69,  89,  113};

struct WeightBlock {
  std::uint8_t q[32];
  F16 d = 0;
  F16 m = 0;
  std::int8_t sc[2] = {1, 1};
  std::uint8_t mn[2] = {0, 0};
};

// row: the start of the row; k: the first element, a multiple of 32. `type` must have a scheme.
WeightBlock read_block(DType type, const std::byte* row, std::int64_t k);

}  // namespace shoal::kernels
