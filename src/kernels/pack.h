// A packed matrix from the inside, for the files of this folder that pack or multiply. Layout: pack_layout.h.
//
// Thread-safety: immutable after packing.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/pack_layout.h"
#include "tensor/buffer.h"

namespace shoal::kernels {

// Whether pack() takes the type.
constexpr bool can_pack(DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ8_0:
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kQ6_K:
      return true;
    default:
      return false;
  }
}

// Inputs [begin, end) become steps [first_step, ...); the last step's tail is zeros.
struct Segment {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t first_step = 0;
};

struct PackedMatrix::Impl {
  DType type = DType::kF32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t pairs = 0;  // ceil(rows / 32)
  std::int64_t steps = 0;
  std::size_t block_bytes = 0;
  std::vector<Segment> segments;
  std::vector<Run> runs;
  // Offsets in a block of each step and of its run's header.
  std::vector<std::uint32_t> step_at;
  std::vector<std::uint32_t> header_at;
  std::span<const std::byte> data;
  Buffer own;                          // empty where something else holds them
  std::shared_ptr<const void> keeper;  // null where own does
};

// The pairs of blocks that thread `thread` of `threads` packs and later multiplies.
struct PairRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
constexpr PairRange pairs_of_thread(std::int64_t pairs, int threads, int thread) {
  return {pairs * thread / threads, pairs * (thread + 1) / threads};
}

}  // namespace shoal::kernels
