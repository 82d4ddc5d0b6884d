#include "kernels/matmul_crossover.h"

#include <gtest/gtest.h>

namespace shoal::kernels {
namespace {

// Time of one pass over a byte of weights by the vector path, as the table has it.
float vector_time(const PathSpeeds& speeds, std::size_t index) { return 1 / speeds.vector[index]; }

TEST(MatmulCrossover, TilesWinExactlyWhereTheFiguresSayThatTheyAreFaster) {
  for (const PathSpeeds& speeds : kPathSpeeds) {
    const std::int64_t from = tiles_from_rows(speeds.type);
    for (std::size_t i = 0; i < std::size(kCrossoverRows); ++i) {
      const bool faster = 1 / speeds.tiles < vector_time(speeds, i);
      EXPECT_EQ(faster, kCrossoverRows[i] >= from)
          << dtype_name(speeds.type) << " at " << kCrossoverRows[i] << " rows, tiles from " << from;
    }
  }
}

TEST(MatmulCrossover, FiguresOfTheVectorPathFallWithRows) {
  for (const PathSpeeds& speeds : kPathSpeeds) {
    for (std::size_t i = 1; i < std::size(kCrossoverRows); ++i) {
      // A tenth is noise.
      EXPECT_LT(speeds.vector[i], 1.1F * speeds.vector[i - 1])
          << dtype_name(speeds.type) << " " << kCrossoverRows[i];
      // In products a second more rows are never slower.
      EXPECT_GT(speeds.vector[i] * static_cast<float>(kCrossoverRows[i]),
                0.9F * speeds.vector[i - 1] * static_cast<float>(kCrossoverRows[i - 1]));
    }
  }
}

TEST(MatmulCrossover, PrefillGoesToTiles) {
  for (const PathSpeeds& speeds : kPathSpeeds) {
    EXPECT_GT(tiles_from_rows(speeds.type), 1) << dtype_name(speeds.type);
    EXPECT_LE(tiles_from_rows(speeds.type), 33) << dtype_name(speeds.type);
  }
}

}  // namespace
}  // namespace shoal::kernels
