// The 64 bytes that tell the tile unit the shape of each tile.
//
// Thread-safety: a value.
// Invariants: of a product c += a . b, c has the rows of a and the bytes per row of b, and b one row for each
//   4 bytes of a row of a; the instruction traps otherwise.

#pragma once

#include <cstdint>

namespace shoal::kernels {

struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

}  // namespace shoal::kernels
