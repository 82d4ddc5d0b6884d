// Prefill by tiles: the activations of up to 256 rows stay in L2 as bf16 tiles, the weights pass by once, and
// are unpacked to bf16 into L1 while the tile unit works on what was unpacked before.
//
// Blocking, all measured: K in passes of 2048 inputs (256 rows x 2048 x 2 bytes = 1 MiB, half of L2); inside
// a pass 32 outputs x 256 inputs of weights at a time (16 KiB, two of them in L1); sums of 32 x 32 wait
// between those blocks in tile order (4 KiB per 32 rows). Unpacking a tile costs 80 cycles, as much as 5
// products, so a quarter tile of the next block goes between the products of this one.
//
// Written over the tile unit, AmxTiles (tiles_amx.h) or what stands in for it in tests.
//
// Thread-safety: pure functions of their arguments, as matmul_kernels.h asks.

#pragma once

#include <cstdint>

#include "kernels/matmul_vec_avx512.h"
#include "kernels/tile_config.h"

namespace shoal::kernels {
namespace {  // each including file has its own copy, built with its own flags

constexpr std::int64_t kPassSteps = 64;  // 2048 inputs
constexpr int kBlockSteps = 8;           // 256 inputs
constexpr int kStepTiles = 2 * 1024;     // bytes: two tiles of one step, for 32 outputs
constexpr int kUnitsPerStep = 8;         // quarter tiles in them
constexpr std::size_t kUnpackAhead = 2048;
constexpr std::size_t kWeightBytes = kBlockSteps * kStepTiles;

// Tiles: 0-3 are sums (row half, then column half), 4 and 5 activations, 6 and 7 weights.

// A code q of 8 bits at bit `at` of each dword as the f32 1 + q / 256: the code becomes the top of a
// mantissa.
template <int at>
SHOAL_INLINE __m512 code_float(__m512i v) {
  if constexpr (at < 15) v = _mm512_slli_epi32(v, 15 - at);
  if constexpr (at > 15) v = _mm512_srli_epi32(v, at - 15);
  // (v & 0x007f8000) | 0x3f800000
  return _mm512_castsi512_ps(
      _mm512_ternarylogic_epi32(v, _mm512_set1_epi32(0x007f8000), _mm512_set1_epi32(0x3f800000), 0xea));
}

// The same for 4 bits: 1 + q / 16.
template <int at>
SHOAL_INLINE __m512 nibble_float(__m512i v) {
  if constexpr (at < 19) v = _mm512_slli_epi32(v, 19 - at);
  if constexpr (at > 19) v = _mm512_srli_epi32(v, at - 19);
  return _mm512_castsi512_ps(
      _mm512_ternarylogic_epi32(v, _mm512_set1_epi32(0x00780000), _mm512_set1_epi32(0x3f800000), 0xea));
}

// One row of a weight tile: 16 outputs x 2 inputs, rounded to bf16 (halves away from zero).
SHOAL_INLINE __m512i pair_row(__m512 even, __m512 odd) {
  const __m512i half = _mm512_set1_epi32(0x8000);
  const __m512i low = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(even), half), 16);
  const __m512i high = _mm512_add_epi32(_mm512_castps_si512(odd), half);
  // (high & 0xffff0000) | low
  return _mm512_ternarylogic_epi32(high, _mm512_set1_epi32(static_cast<int>(0xffff0000U)), low, 0xea);
}

// Unpacks 32 outputs x up to 8 steps, a quarter tile at a time.
template <DType type>
class Unpacker {
 public:
  explicit Unpacker(const PanelArgs& a) : a_(a) {}

  void start(std::int64_t pair, std::int64_t first_step, std::int64_t steps, std::byte* out) {
    base_ = a_.blocks + 2 * static_cast<std::size_t>(pair) * a_.block_bytes;
    step_ = first_step;
    out_ = out;
    unit_ = 0;
    units_ = static_cast<int>(steps) * kUnitsPerStep;
  }

  SHOAL_INLINE void unit() {
    if (unit_ == units_) return;
    const int quarter = unit_ % 4;
    if (quarter == 0) next_tile();
    prefetch_ahead(quarter);
    rows(payload_, quarter, out_);
    out_ += 256;
    ++unit_;
  }

  void finish() {
    while (unit_ < units_) unit();
  }

 private:
  static constexpr bool kNibbles = payload_bits(type) == 4;
  // value = q * s + c, and the codes come as 1 + q / range: value = float * (range * s) + (c - range * s).
  static constexpr float kRange = kNibbles ? 16 : 256;

  // Both blocks of a step one after the other.
  __attribute__((noinline)) void next_tile() {
    const std::int64_t step = step_ + unit_ / kUnitsPerStep;
    const std::byte* block = base_ + (unit_ / 4 % 2 != 0 ? a_.block_bytes : 0);
    const std::byte* at = block + a_.step_at[step];
    payload_ = at + scale_bytes(type);
    // Past its end a stream goes on one block further: the other block of the pair lies between.
    std::size_t ahead = static_cast<std::size_t>(payload_ - block) + kUnpackAhead;
    if (ahead >= a_.block_bytes) ahead += a_.block_bytes;
    ahead_ = block + ahead;
    if constexpr (scheme_of(type) != Scheme::kNone) prepare_scales(block + a_.header_at[step], at);
  }

  SHOAL_INLINE void prepare_scales(const std::byte* header, const std::byte* step) {
    StepScales<Avx512, type> scales;
    scales.load(header, step);
    const __m512 range = _mm512_set1_ps(kRange);
    constexpr float zero_code = static_cast<float>(offset_of(type));
    const auto put = [&](int index, __m512 s) SHOAL_INLINE_LAMBDA {
      const __m512 factor = _mm512_mul_ps(s, range);
      __m512 addend;
      if constexpr (offset_of(type) == 0) {
        addend = _mm512_sub_ps(scales.minimum, factor);
      } else {
        addend = _mm512_mul_ps(s, _mm512_set1_ps(-zero_code - kRange));
      }
      _mm512_store_ps(factor_[index], factor);
      _mm512_store_ps(addend_[index], addend);
    };
    put(0, scales.first);
    if constexpr (scheme_of(type) == Scheme::kSuper) put(1, scales.second);
  }

  SHOAL_INLINE void prefetch_ahead(int quarter) {
    constexpr int bytes = payload_bytes(type) / 4;
    for (int line = 0; line < bytes; line += 64) prefetch(ahead_ + bytes * quarter + line);
  }

  SHOAL_INLINE void rows(const std::byte* payload, int quarter, std::byte* out) {
    if constexpr (type == DType::kBF16) {
      unroll<4>([&](auto i) SHOAL_INLINE_LAMBDA {
        _mm512_store_si512(out + 64 * i, _mm512_loadu_si512(payload + 256 * quarter + 64 * i));
      });
    } else {
      const int index = scheme_of(type) == Scheme::kSuper && quarter >= 2 ? 1 : 0;
      const __m512 factor = _mm512_load_ps(factor_[index]);
      const __m512 addend = _mm512_load_ps(addend_[index]);
      const auto value = [&](__m512 code)
                             SHOAL_INLINE_LAMBDA { return _mm512_fmadd_ps(code, factor, addend); };
      if constexpr (kNibbles) {
        const __m512i v = _mm512_loadu_si512(payload + 64 * quarter);
        unroll<4>([&](auto i) SHOAL_INLINE_LAMBDA {
          // Inputs 0-3 are the low nibbles of the four bytes, 4-7 the high ones.
          constexpr int first = i * 2 % 4 * 8 + i / 2 * 4;
          _mm512_store_si512(out + 64 * i,
                             pair_row(value(nibble_float<first>(v)), value(nibble_float<first + 8>(v))));
        });
      } else {
        unroll<2>([&](auto g) SHOAL_INLINE_LAMBDA {
          const __m512i v = codes<g>(payload, quarter);
          _mm512_store_si512(out + 128 * g, pair_row(value(code_float<0>(v)), value(code_float<8>(v))));
          _mm512_store_si512(out + 128 * g + 64,
                             pair_row(value(code_float<16>(v)), value(code_float<24>(v))));
        });
      }
    }
  }

  // Dwords of four codes: group 2 * quarter + g of the step.
  template <int g>
  SHOAL_INLINE __m512i codes(const std::byte* payload, int quarter) {
    constexpr int bits = payload_bits(type);
    if constexpr (bits == 8) {
      return _mm512_loadu_si512(payload + 128 * quarter + 64 * g);
    } else {
      __m512i low = _mm512_loadu_si512(payload + 64 * quarter);
      if constexpr (g == 1) low = _mm512_srli_epi32(low, 4);
      low = _mm512_and_si512(low, _mm512_set1_epi32(0x0f0f0f0f));
      __m512i upper = _mm512_loadu_si512(payload + 256 + (bits == 6 ? 64 * (quarter / 2) : 0));
      const int shift = bits == 5 ? 2 * quarter : 4 * (quarter % 2);
      upper = _mm512_srl_epi32(upper, _mm_cvtsi32_si128(shift));
      upper = _mm512_slli_epi32(upper, bits == 5 ? 4 - g : 4 - 2 * g);
      return Avx512::or_bits(low, upper, bits == 5 ? 0x10101010U : 0x30303030U);
    }
  }

  alignas(64) float factor_[2][16];
  alignas(64) float addend_[2][16];
  const PanelArgs& a_;
  const std::byte* base_ = nullptr;
  const std::byte* payload_ = nullptr;
  const std::byte* ahead_ = nullptr;
  std::int64_t step_ = 0;
  std::byte* out_ = nullptr;
  int unit_ = 0;
  int units_ = 0;
};

// 32 rows (or 16 where `both` is false) x 32 outputs over one block of inputs, with `units` quarter tiles of
// the next block unpacked in each step. x0, x1: activation tiles of the two row halves, 1 KiB a step.
template <class Tiles, bool both, int units, class Unpack>
SHOAL_INLINE void products(const std::byte* x0, const std::byte* x1, const std::byte* weights,
                           std::int64_t steps, Unpack& next) {
  for (std::int64_t s = 0; s < steps; ++s) {
    Tiles::template load<6>(weights + s * kStepTiles, 64);
    Tiles::template load_stream<4>(x0 + s * 1024, 64);
    Tiles::template multiply_bf16<0, 4, 6>();
    unroll<(units + 3) / 4>([&](auto) SHOAL_INLINE_LAMBDA { next.unit(); });
    Tiles::template load<7>(weights + s * kStepTiles + 1024, 64);
    Tiles::template multiply_bf16<1, 4, 7>();
    unroll<(units + 1) / 4>([&](auto) SHOAL_INLINE_LAMBDA { next.unit(); });
    if constexpr (both) {
      Tiles::template load_stream<5>(x1 + s * 1024, 64);
      Tiles::template multiply_bf16<3, 5, 7>();
    }
    unroll<(units + 2) / 4>([&](auto) SHOAL_INLINE_LAMBDA { next.unit(); });
    if constexpr (both) Tiles::template multiply_bf16<2, 5, 6>();
    unroll<units / 4>([&](auto) SHOAL_INLINE_LAMBDA { next.unit(); });
  }
}

template <class Tiles, bool both, class Unpack>
void row_block(const std::byte* x0, const std::byte* x1, const std::byte* weights, std::int64_t steps,
               int units, bool fresh, std::byte* sums, Unpack& next) {
  if (fresh) {
    Tiles::template clear<0>();
    Tiles::template clear<1>();
    if (both) {
      Tiles::template clear<2>();
      Tiles::template clear<3>();
    }
  } else {
    Tiles::template load<0>(sums, 64);
    Tiles::template load<1>(sums + 1024, 64);
    if (both) {
      Tiles::template load<2>(sums + 2048, 64);
      Tiles::template load<3>(sums + 3072, 64);
    }
  }
  if (units <= 1) {
    products<Tiles, both, 1>(x0, x1, weights, steps, next);
  } else if (units <= 2) {
    products<Tiles, both, 2>(x0, x1, weights, steps, next);
  } else if (units <= 4) {
    products<Tiles, both, 4>(x0, x1, weights, steps, next);
  } else {
    products<Tiles, both, 8>(x0, x1, weights, steps, next);
  }
  Tiles::template store<0>(sums, 64);
  Tiles::template store<1>(sums + 1024, 64);
  if (both) {
    Tiles::template store<2>(sums + 2048, 64);
    Tiles::template store<3>(sums + 3072, 64);
  }
}

// Sums in tile order to rows of y; `add` where an earlier pass has been there.
void write_sums(const PanelArgs& a, const std::byte* sums, std::int64_t first_column, bool add) {
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const auto* from =
        reinterpret_cast<const float*>(sums + r / 32 * 4096 + r % 32 / 16 * 2048 + r % 16 * 64);
    for (std::int64_t half = 0; half < 2; ++half) {
      const std::int64_t column = first_column + 16 * half;
      if (column >= a.columns) break;
      const std::int64_t n = a.columns - column < 16 ? a.columns - column : 16;
      const auto mask = static_cast<__mmask16>((1U << n) - 1);
      float* y = a.y + r * a.y_stride + column;
      __m512 sum = _mm512_load_ps(from + 256 * half);
      if (add) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, y));
      // Past the caches: y as a whole is larger than L2, and rows lie a power of two apart, so that lines
      // written the usual way push each other out before they are full.
      if (n == 16 && !add && (reinterpret_cast<std::uintptr_t>(y) & 63) == 0) {
        _mm512_stream_ps(y, sum);
      } else {
        _mm512_mask_storeu_ps(y, mask, sum);
      }
    }
  }
}

template <class Tiles, DType type>
void tile_panel(const PanelArgs& a) {
  if (a.pair_begin == a.pair_end) return;
  Tiles::configure(TileConfig{});
  std::byte* weights[2] = {a.scratch, a.scratch + kWeightBytes};
  std::byte* sums = a.scratch + 2 * kWeightBytes;
  const std::int64_t tiles = (a.rows + 15) / 16;
  const std::int64_t tile_bytes = a.steps * 1024;
  Unpacker<type> next(a);
  for (std::int64_t pass = 0; pass < a.steps; pass += kPassSteps) {
    const std::int64_t pass_end = pass + kPassSteps < a.steps ? pass + kPassSteps : a.steps;
    const auto steps_at = [&](std::int64_t step) {
      return pass_end - step < kBlockSteps ? pass_end - step : kBlockSteps;
    };
    int now = 0;
    next.start(a.pair_begin, pass, steps_at(pass), weights[now]);
    next.finish();
    for (std::int64_t pair = a.pair_begin; pair < a.pair_end; ++pair) {
      for (std::int64_t step = pass; step < pass_end; step += kBlockSteps) {
        const std::int64_t steps = steps_at(step);
        std::int64_t coming_steps = 0;
        if (step + kBlockSteps < pass_end) {
          coming_steps = steps_at(step + kBlockSteps);
          next.start(pair, step + kBlockSteps, coming_steps, weights[1 - now]);
        } else if (pair + 1 < a.pair_end) {
          coming_steps = steps_at(pass);
          next.start(pair + 1, pass, coming_steps, weights[1 - now]);
        }
        const std::int64_t slots = (tiles + 1) / 2 * steps;
        const auto units = static_cast<int>((coming_steps * kUnitsPerStep + slots - 1) / slots);
        for (std::int64_t tile = 0; tile < tiles; tile += 2) {
          const std::byte* x0 = a.x + tile * tile_bytes + step * 1024;
          std::byte* block_sums = sums + tile / 2 * 4096;
          if (tile + 1 < tiles) {
            row_block<Tiles, true>(x0, x0 + tile_bytes, weights[now], steps, units, step == pass, block_sums,
                                   next);
          } else {
            row_block<Tiles, false>(x0, x0, weights[now], steps, units, step == pass, block_sums, next);
          }
        }
        next.finish();
        now = 1 - now;
      }
      write_sums(a, sums, pair * kPairColumns, pass > 0);
    }
  }
  Tiles::release();
  _mm_sfence();  // streaming stores before the threads meet
}

// Null where the type has no such kernel.
template <class Tiles>
PanelKernel tile_kernel(DType type) {
  switch (type) {
#define SHOAL_CASE(name) \
  case DType::name:      \
    return tile_panel<Tiles, DType::name>;
    SHOAL_CASE(kBF16)
    SHOAL_QUANTISED_TYPES(SHOAL_CASE)
#undef SHOAL_CASE
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace shoal::kernels
