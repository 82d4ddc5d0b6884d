// Tile instructions. By own assembly with memory clobbers: GCC 12's intrinsics name neither the tile
// configuration's bytes nor the memory a tile load reads, and lose the stores before them.
//
// Thread-safety: tiles are registers of the calling thread. configure() before the first use, release() after
//   the last: a thread that holds tiles pays for 8 KiB more at each context switch.
// Invariants: tiles keep their contents between calls; nothing else in the program reads or writes them.

#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/tile_config.h"

namespace shoal::kernels {
namespace {  // each including file has its own copy, built with its own flags

#define SHOAL_TILE static inline __attribute__((always_inline))

struct AmxTiles {
  // Also zeroes all tiles.
  SHOAL_TILE void configure(const TileConfig& config) {
    asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
  }
  SHOAL_TILE void release() { asm volatile("tilerelease" : : : "memory"); }
  template <int tile>
  SHOAL_TILE void clear() {
    asm volatile("tilezero %%tmm%c0" : : "i"(tile));
  }
  // stride: bytes from row to row.
  template <int tile>
  SHOAL_TILE void load(const void* p, std::int64_t stride) {
    asm volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(tile), "r"(p), "r"(stride) : "memory");
  }
  // Passes L1 by, for what comes from L2 and is not needed again soon.
  template <int tile>
  SHOAL_TILE void load_stream(const void* p, std::int64_t stride) {
    asm volatile("tileloaddt1 (%1,%2,1), %%tmm%c0" : : "i"(tile), "r"(p), "r"(stride) : "memory");
  }
  template <int tile>
  SHOAL_TILE void store(void* p, std::int64_t stride) {
    asm volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(tile), "r"(p), "r"(stride) : "memory");
  }
  // sums [rows][16] f32 += a [rows][32] bf16 . b [16 pairs][16][2] bf16. Denormals count as zero.
  template <int sums, int a, int b>
  SHOAL_TILE void multiply_bf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sums), "i"(a), "i"(b));
  }
};

#undef SHOAL_TILE

}  // namespace
}  // namespace shoal::kernels
