// How packed weights lie in memory: the geometry that packing and every kernel read.
//
// A matrix of N outputs and K inputs is cut into column blocks of 16 outputs. A block holds all of K, as runs
// of steps of 32 inputs; a run never crosses a segment border, nor a 256-wide source block, whose scales are
// its header. K is zero-padded to whole steps at the end of each segment.
//
// run   [16 f16 d][16 f16 m]           only kSuperMin (both) and kSuper (d) step  [scales][payload] scales
// kScale 16 f16 d; kScaleMin also 16 f16 m; kSuperMin 16 u8 sc, 16 u8 mn; kSuper 16 i8 sc of inputs 0-15,
// then of 16-31 payload  8 bit: 8 vectors of 64 bytes, dword c of vector g = inputs 4g..4g+3 of output c 4
// bit: 4 vectors; low nibbles inputs 8g..8g+3, high nibbles 8g+4..8g+7 5 bit: the 4-bit vectors, then one
// whose byte j, bit g of dword c is the fifth bit of input 4g+j 6 bit: the 4-bit vectors, then two whose byte
// j, bits 2g'.. of dword c of vector h are the upper bits of input 16h+4g'+j bf16: 16 vectors, dword c =
// inputs 2g, 2g+1 of output c f16, f32: 32 rows of 16 outputs
//
// One dword of one output is what VPDPBUSD, VPMADDUBSW and a row of an AMX tile all take, so a single copy
// serves every instruction set. Blocks come in pairs (the last may be zeros): two streams from memory keep a
// core's line buffers full, and pairs are what an AMX step takes.
//
// Thread-safety: constants.

#pragma once

#include <cstdint>

#include "kernels/weights_block.h"

namespace shoal::kernels {

// Grows with every change of what packed bytes mean: copies on disk are of one version.
inline constexpr std::uint32_t kPackingVersion = 1;

inline constexpr std::int64_t kBlockColumns = 16;
inline constexpr std::int64_t kPairColumns = 2 * kBlockColumns;
inline constexpr std::int64_t kStepInputs = 32;

// Bits of one packed weight.
constexpr int payload_bits(DType type) {
  switch (type) {
    case DType::kF32:
      return 32;
    case DType::kF16:
    case DType::kBF16:
      return 16;
    case DType::kQ8_0:
      return 8;
    case DType::kQ6_K:
      return 6;
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ5_K:
      return 5;
    default:
      return 4;
  }
}

constexpr int payload_bytes(DType type) { return payload_bits(type) * 16 * 32 / 8; }

// Bytes in front of the payload of a step.
constexpr int scale_bytes(DType type) {
  switch (scheme_of(type)) {
    case Scheme::kScale:
    case Scheme::kSuperMin:
    case Scheme::kSuper:
      return 32;
    case Scheme::kScaleMin:
      return 64;
    default:
      return 0;
  }
}

constexpr int step_bytes(DType type) { return scale_bytes(type) + payload_bytes(type); }

constexpr int header_bytes(DType type) {
  return scheme_of(type) == Scheme::kSuperMin ? 64 : scheme_of(type) == Scheme::kSuper ? 32 : 0;
}

struct Run {
  std::int32_t steps = 0;
  bool ends_segment = false;
};

}  // namespace shoal::kernels
