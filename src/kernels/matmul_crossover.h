// From how many rows products by tiles are faster than by the vector units: measured figures, and the choice
// that follows from them.
//
// Thread-safety: constants.
// Invariants: figures come from bench/matmul_crossover.py, which prints these lines; where one is not of a
//   measurement of its own, it says so.

#pragma once

#include <cstdint>
#include <iterator>

#include "tensor/dtype.h"

namespace shoal::kernels {

inline constexpr std::int64_t kCrossoverRows[] = {1, 2, 4, 8, 12, 16, 24, 32};

// GB/s of packed weights that one core multiplies, 2048 x 8192 from memory.
struct PathSpeeds {
  DType type;
  float vector[std::size(kCrossoverRows)];
  float tiles;  // a pass costs the same for any number of rows up to 32
};

inline constexpr PathSpeeds kPathSpeeds[] = {
    // vector: 1, 2, 4, 8, 12, 16, 24, 32 rows; then tiles. AVX-512 figures: both threads at once, where one
    // alone reads 16 GB/s. Tile figures: one thread that reads 17 GB/s, an earlier run; those of Q4_1 and of
    // 5 bits follow from Q4_K's and Q6_K's by bytes a weight, as unpacking is what binds there.
    {DType::kBF16, {15.0F, 14.5F, 12.6F, 10.4F, 8.9F, 7.5F, 5.8F, 4.6F}, 12.6F},
    {DType::kQ4_0, {14.8F, 14.2F, 13.7F, 10.0F, 7.7F, 6.5F, 4.8F, 3.7F}, 5.3F},
    {DType::kQ4_1, {14.5F, 14.3F, 13.3F, 10.2F, 7.7F, 6.7F, 5.0F, 3.9F}, 5.0F},
    {DType::kQ5_0, {14.4F, 14.2F, 13.6F, 11.2F, 8.7F, 7.3F, 5.5F, 4.3F}, 3.4F},
    {DType::kQ5_1, {14.7F, 14.2F, 13.7F, 10.6F, 8.7F, 7.0F, 5.8F, 4.5F}, 3.7F},
    {DType::kQ8_0, {16.3F, 15.1F, 14.8F, 13.1F, 12.4F, 11.0F, 9.3F, 7.0F}, 9.6F},
    {DType::kQ4_K, {14.6F, 13.9F, 13.3F, 9.5F, 7.3F, 6.0F, 4.6F, 3.5F}, 4.6F},
    {DType::kQ5_K, {13.8F, 13.9F, 13.1F, 10.8F, 8.2F, 7.0F, 5.0F, 4.0F}, 3.4F},
    {DType::kQ6_K, {14.2F, 13.6F, 13.2F, 10.2F, 8.1F, 6.5F, 5.2F, 4.0F}, 4.0F},
};

// The vector path's time grows evenly between two measured numbers of rows. Beyond the last one tiles win, as
// they do for types that are not listed.
constexpr std::int64_t tiles_from_rows(DType type) {
  for (const PathSpeeds& speeds : kPathSpeeds) {
    if (speeds.type != type) continue;
    for (std::size_t i = 0; i < std::size(kCrossoverRows); ++i) {
      if (speeds.vector[i] >= speeds.tiles) continue;
      if (i == 0) return kCrossoverRows[0];
      const float before = 1 / speeds.vector[i - 1];
      const float slope =
          (1 / speeds.vector[i] - before) / static_cast<float>(kCrossoverRows[i] - kCrossoverRows[i - 1]);
      const float rows = (1 / speeds.tiles - before) / slope;
      return kCrossoverRows[i - 1] + static_cast<std::int64_t>(rows) + 1;
    }
    return kCrossoverRows[std::size(kCrossoverRows) - 1] + 1;
  }
  return kCrossoverRows[0];
}

}  // namespace shoal::kernels
