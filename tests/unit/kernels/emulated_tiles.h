// The tile unit in plain C++, behind the names of AmxTiles (kernels/tiles_amx.h): kernels written over either
// are tested where the processor, or a hypervisor, has no tiles.
//
// Thread-safety: each thread has its own tiles, as it has its own registers.
// Invariants: sums are those of TDPBF16PS: even and odd inputs apart, each in a chain of fused f32 operations
// from
//   zero, both added to the destination; denormals count as zero. What the instruction would trap on aborts.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/tile_config.h"
#include "tensor/half.h"

namespace shoal::kernels {
namespace {  // compiled with the flags of the kernel beside it

class EmulatedTiles {
 public:
  static void configure(const TileConfig& config) {
    Unit& u = unit();
    u = Unit{};
    u.config = config;
    u.configured = true;
    require(config.palette == 1, "palette 1");
    for (int t = 0; t < 8; ++t) {
      require(config.rows[t] <= 16 && config.bytes_per_row[t] <= 64, "at most 16 rows of 64 bytes");
    }
  }
  static void release() { unit() = Unit{}; }

  template <int tile>
  static void clear() {
    std::memset(rows_of(tile), 0, kBytes);
  }
  template <int tile>
  static void load(const void* p, std::int64_t stride) {
    Unit& u = unit();
    clear<tile>();
    for (int r = 0; r < u.config.rows[tile]; ++r) {
      std::memcpy(row_of(tile, r), static_cast<const std::byte*>(p) + r * stride,
                  u.config.bytes_per_row[tile]);
    }
  }
  template <int tile>
  static void load_stream(const void* p, std::int64_t stride) {
    load<tile>(p, stride);
  }
  template <int tile>
  static void store(void* p, std::int64_t stride) {
    const Unit& u = unit();
    for (int r = 0; r < u.config.rows[tile]; ++r) {
      std::memcpy(static_cast<std::byte*>(p) + r * stride, row_of(tile, r), u.config.bytes_per_row[tile]);
    }
  }

  template <int sums, int a, int b>
  static void multiply_bf16() {
    const TileConfig& config = unit().config;
    const int pairs = config.bytes_per_row[a] / 4;
    const int columns = config.bytes_per_row[sums] / 4;
    require(sums != a && sums != b && a != b, "three tiles");
    require(config.rows[sums] == config.rows[a] && config.bytes_per_row[sums] == config.bytes_per_row[b] &&
                config.rows[b] == pairs,
            "tiles of matching shapes");
    float left[16][32];
    float right[16][32];
    for (int m = 0; m < config.rows[a]; ++m) widen(row_of(a, m), 2 * pairs, left[m]);
    for (int k = 0; k < pairs; ++k) widen(row_of(b, k), 2 * columns, right[k]);
    for (int m = 0; m < config.rows[sums]; ++m) {
      float to[16];
      std::memcpy(to, row_of(sums, m), sizeof(to));
      for (int n = 0; n < columns; ++n) {
        float even = 0;
        float odd = 0;
        for (int k = 0; k < pairs; ++k) {
          even = std::fma(left[m][2 * k], right[k][2 * n], even);
          odd = std::fma(left[m][2 * k + 1], right[k][2 * n + 1], odd);
        }
        to[n] += even + odd;
      }
      std::memcpy(row_of(sums, m), to, sizeof(to));
    }
  }

 private:
  static constexpr int kBytes = 1024;

  struct Unit {
    TileConfig config;
    bool configured = false;
    std::byte tiles[8][kBytes] = {};
  };
  static Unit& unit() {
    thread_local Unit of_thread;
    return of_thread;
  }
  static std::byte* rows_of(int tile) {
    require(unit().configured, "a configuration");
    return unit().tiles[tile];
  }
  static std::byte* row_of(int tile, int row) { return rows_of(tile) + 64 * row; }

  static void widen(const std::byte* row, int n, float* out) {
    for (int i = 0; i < n; ++i) {
      Bf16 half;
      std::memcpy(&half, row + 2 * i, sizeof(half));
      out[i] = bf16_to_f32(half);
      if (std::fpclassify(out[i]) == FP_SUBNORMAL) out[i] = 0;
    }
  }

  static void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "the tile unit traps: needs %s\n", what);
    std::abort();
  }
};

}  // namespace
}  // namespace shoal::kernels
