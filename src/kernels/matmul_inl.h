// The f32 and the int8 products, written once over a vector of 16 outputs; included by one file per
// instruction set, which gives the vector type V in its anonymous namespace (so nothing here is shared
// between files compiled with different flags).
//
// V has: F (16 f32) and I (16 dwords); zero_f, load_f, from_f16, from_u8, from_i8, to_f, as_f, mul,
// mul_scalar, add, negate, fma(a, scalar pointer, acc), store; load_i, set1, zero_i, sub, shl<n>, shr<n>,
// sar<n>, bits(v, mask), or_bits; load_four; dot(acc, codes, four): acc += the four u8 codes of each dword
// times four i8; dot_signed: the same for codes of full range stored with offset 128 but multiplied without
// it; kSignedDot: whether 8-bit codes go to dot_signed; kShiftsCodes: whether codes go to dot with all
// offsets shifted to 128; kBlocks: blocks of a pair that its registers take at once.

#pragma once

#include "kernels/matmul_kernels.h"
#include "kernels/unroll_inl.h"

namespace shoal::kernels {

// Where loads of packed weights run ahead: 1 to 2 KiB is best here, 4 KiB and more are worse.
inline constexpr std::int64_t kPrefetchAhead = 1536;

constexpr int log2_of(int power) { return power <= 1 ? 0 : 1 + log2_of(power / 2); }

// How far codes are shifted up, so that every offset becomes 128 (scales shrink by as much, exactly) and one
// value in Q8Block starts all integer sums.
template <class V, DType type>
constexpr int code_shift() {
  return V::kShiftsCodes && offset_of(type) != 0 ? 7 - log2_of(offset_of(type)) : 0;
}
template <class V, int n>
SHOAL_INLINE typename V::I shift_up(typename V::I v) {
  if constexpr (n > 0) return V::template shl<n>(v);
  if constexpr (n < 0) return V::template shr<-n>(v);
  return v;
}

// Group g of a step: dwords of four codes, inputs 4g..4g+3, each 0 to 2^bits - 1, shifted.
template <class V, DType type, int g>
SHOAL_INLINE typename V::I code_group(const std::byte* payload) {
  constexpr int bits = payload_bits(type);
  constexpr int up = code_shift<V, type>();
  if constexpr (bits == 8) {
    return V::load_i(payload + 64 * g);
  } else {
    const typename V::I packed = V::load_i(payload + 64 * (g / 2));
    const typename V::I low = V::bits(shift_up<V, up - 4 * (g % 2)>(packed), 0x0f0f0f0fU << up);
    if constexpr (bits == 4) return low;
    // Upper bits move to bit 4 of their byte (shifted with it).
    constexpr int from = bits == 5 ? g : 2 * (g % 4);
    constexpr unsigned mask = (bits == 5 ? 0x10101010U : 0x30303030U) << up;
    const typename V::I upper = V::load_i(payload + 256 + (bits == 6 ? 64 * (g / 4) : 0));
    return V::or_bits(low, shift_up<V, 4 + up - from>(upper), mask);
  }
}

// Scales of one step in f32. first, second: of inputs 0-15 and 16-31 (equal but for kSuper); minimum is what
// is added after the product, so negative for kSuperMin.
template <class V, DType type>
struct StepScales {
  typename V::F first;
  typename V::F second;
  typename V::F minimum;

  SHOAL_INLINE void load(const std::byte* header, const std::byte* step) {
    constexpr Scheme scheme = scheme_of(type);
    if constexpr (scheme == Scheme::kScale || scheme == Scheme::kScaleMin) first = V::from_f16(step);
    if constexpr (scheme == Scheme::kScaleMin) minimum = V::from_f16(step + 32);
    if constexpr (scheme == Scheme::kSuperMin) {
      first = V::mul(V::from_f16(header), V::from_u8(step));
      minimum = V::negate(V::mul(V::from_f16(header + 32), V::from_u8(step + 16)));
    }
    if constexpr (scheme == Scheme::kSuper) {
      first = V::mul(V::from_f16(header), V::from_i8(step));
      second = V::mul(V::from_f16(header), V::from_i8(step + 16));
    }
  }

  // For codes shifted up by n.
  template <int n>
  SHOAL_INLINE void shift_down() {
    if constexpr (n > 0) {
      static constexpr float kFactor = 1.0F / (1 << n);
      first = V::mul_scalar(first, kFactor);
      if constexpr (scheme_of(type) == Scheme::kSuper) second = V::mul_scalar(second, kFactor);
    }
  }
};

// Calls f(k, weights of input k) for the 32 inputs of a step, values exactly as dequantise_row gives them. A
// loop over 8 inputs, not 32 unrolled: this path is for comparisons and for plain types, where the code's
// size (and the compiler's minutes) count for more than a few cycles.
template <class V, DType type, typename F>
SHOAL_INLINE void for_each_weight(const std::byte* header, const std::byte* step, F&& f) {
  const std::byte* payload = step + scale_bytes(type);
  StepScales<V, type> scales;
  scales.load(header, step);
  typename V::I upper;  // the fifth (and sixth) bits of the inputs at hand, lowest first
  for (int eight = 0; eight < 4; ++eight, payload += payload_bits(type) >= 8 ? payload_bytes(type) / 4 : 64) {
    if constexpr (type == DType::kF32) {
      unroll<8>([&](auto k) SHOAL_INLINE_LAMBDA { f(8 * eight + k, V::load_f(payload + 64 * k)); });
    } else if constexpr (type == DType::kF16) {
      unroll<8>([&](auto k) SHOAL_INLINE_LAMBDA { f(8 * eight + k, V::from_f16(payload + 32 * k)); });
    } else if constexpr (type == DType::kBF16) {
      unroll<4>([&](auto pair) SHOAL_INLINE_LAMBDA {
        const typename V::I both = V::load_i(payload + 64 * pair);
        f(8 * eight + 2 * pair, V::as_f(V::template shl<16>(both)));
        f(8 * eight + 2 * pair + 1, V::as_f(V::bits(both, 0xffff0000U)));
      });
    } else {
      constexpr int bits = payload_bits(type);
      const std::byte* upper_bits = step + scale_bytes(type) + 256;
      if (bits == 5 && eight == 0) upper = V::load_i(upper_bits);
      if (bits == 6 && eight % 2 == 0) upper = V::load_i(upper_bits + 32 * eight);
      const typename V::F scale =
          scheme_of(type) == Scheme::kSuper && eight >= 2 ? scales.second : scales.first;
      unroll<2>([&](auto g) SHOAL_INLINE_LAMBDA {
        typename V::I codes;
        if constexpr (bits == 8) {
          codes = V::load_i(payload + 64 * g);
        } else {
          codes = V::bits(V::template shr<4 * g>(V::load_i(payload)), 0x0f0f0f0f);
        }
        if constexpr (bits == 5) codes = V::or_bits(codes, V::template shl<4 - g>(upper), 0x10101010U);
        if constexpr (bits == 6) codes = V::or_bits(codes, V::template shl<4 - 2 * g>(upper), 0x30303030U);
        unroll<4>([&](auto j) SHOAL_INLINE_LAMBDA {
          typename V::I code = V::bits(V::template shr<8 * j>(codes), 0xff);
          if constexpr (offset_of(type) != 0) code = V::sub(code, V::set1(offset_of(type)));
          typename V::F w = V::mul(V::to_f(code), scale);
          if constexpr (offset_of(type) == 0) w = V::add(w, scales.minimum);
          f(8 * eight + 4 * g + j, w);
        });
      });
      if constexpr (bits == 5) upper = V::template shr<2>(upper);
      if constexpr (bits == 6) upper = V::template shr<4>(upper);
    }
  }
}

// Sums of R rows x C blocks: the running segment in registers, what earlier segments gave in `total`.
template <class V, int R, int C>
struct Sums {
  typename V::F now[R][C];
  float total[R][C][16];
  bool folded = false;

  SHOAL_INLINE void start() {
    unroll<R>([&](auto r) SHOAL_INLINE_LAMBDA {
      unroll<C>([&](auto c) SHOAL_INLINE_LAMBDA { now[r][c] = V::zero_f(); });
    });
  }
  SHOAL_INLINE void fold() {
    unroll<R>([&](auto r) SHOAL_INLINE_LAMBDA {
      unroll<C>([&](auto c) SHOAL_INLINE_LAMBDA {
        typename V::F sum = now[r][c];
        if (folded) sum = V::add(V::load_f(total[r][c]), sum);
        V::store(total[r][c], sum);
        now[r][c] = V::zero_f();
      });
    });
    folded = true;
  }
  // first: the first output of block 0.
  SHOAL_INLINE void write(const PanelArgs& a, std::int64_t first) {
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < C; ++c) {
        const std::int64_t column = first + 16 * c;
        float* y = a.y + r * a.y_stride + column;
        if (column + 16 <= a.columns) {
          V::store(y, V::load_f(total[r][c]));
        } else {
          for (std::int64_t i = 0; column + i < a.columns; ++i) y[i] = total[r][c][i];
        }
      }
    }
  }
};

// By assembly: the compiler takes a function that only prefetches for one without effect and drops the call.
SHOAL_INLINE void prefetch(const std::byte* p) {
#if defined(__x86_64__)
  asm volatile("prefetcht0 %0" : : "m"(*p));
#else
  __builtin_prefetch(p);
#endif
}

// Walks the steps of C neighbouring blocks. f(headers, steps, step index); end() at the end of each segment.
template <class V, DType type, int C, typename F, typename End>
SHOAL_INLINE void walk(const PanelArgs& a, std::int64_t block, F&& f, End&& end) {
  const std::byte* base = a.blocks + static_cast<std::size_t>(block) * a.block_bytes;
  std::size_t at = 0;
  std::int64_t step = 0;
  for (std::int64_t i = 0; i < a.run_count; ++i) {
    const std::size_t header = at;
    at += header_bytes(type);
    for (int s = 0; s < a.runs[i].steps; ++s) {
      // Past its end a stream goes on one block further: the other block of the pair lies between.
      std::size_t ahead = at + kPrefetchAhead;
      if (ahead >= a.block_bytes) ahead += a.block_bytes * (C - 1);
      unroll<C>([&](auto c) SHOAL_INLINE_LAMBDA {
        for (int line = 0; line < step_bytes(type); line += 64)
          prefetch(base + c * a.block_bytes + ahead + line);
      });
      const std::byte* headers[C];
      const std::byte* steps[C];
      unroll<C>([&](auto c) SHOAL_INLINE_LAMBDA {
        headers[c] = base + c * a.block_bytes + header;
        steps[c] = base + c * a.block_bytes + at;
      });
      f(headers, steps, step);
      at += step_bytes(type);
      ++step;
    }
    if (a.runs[i].ends_segment) end();
  }
}

// R rows x C blocks, f32 straight from the packed bytes. Only for plain types: one or two rows then run at
// the speed of memory.
template <class V, DType type, int R, int C>
void f32_rows(const PanelArgs& a, std::int64_t block) {
  const float* x = reinterpret_cast<const float*>(a.x);
  Sums<V, R, C> sums;
  sums.start();
  walk<V, type, C>(
      a, block,
      [&](const std::byte* const* headers, const std::byte* const* steps,
          std::int64_t step) SHOAL_INLINE_LAMBDA {
        const float* xs = x + step * kGroupRows * kStepInputs;
        unroll<C>([&](auto c) SHOAL_INLINE_LAMBDA {
          for_each_weight<V, type>(headers[c], steps[c], [&](auto k, typename V::F w) SHOAL_INLINE_LAMBDA {
            unroll<R>([&](auto r) SHOAL_INLINE_LAMBDA {
              sums.now[r][c] = V::fma(w, xs + r * kStepInputs + k, sums.now[r][c]);
            });
          });
        });
      },
      [&] { sums.fold(); });
  sums.write(a, block * kBlockColumns);
}

// Where the integer sums of `half` (0 where the step is one) begin.
template <class V, DType type, int half>
SHOAL_INLINE typename V::I int8_start(const Q8Block& x) {
  constexpr bool is_signed = payload_bits(type) == 8 && V::kSignedDot;
  if constexpr (is_signed || offset_of(type) == 0) return V::zero_i();
  typename V::I start = V::set1(scheme_of(type) == Scheme::kSuper && half == 0 ? x.start_low : x.start);
  if constexpr (half == 1) start = V::sub(start, V::set1(x.start_low));
  constexpr int down = 7 - log2_of(offset_of(type)) - code_shift<V, type>();
  if constexpr (down > 0) start = V::template sar<down>(start);
  return start;
}

// One step of R rows x C blocks.
template <class V, DType type, int R, int C, class AllSums>
SHOAL_INLINE void int8_step(const std::byte* const* headers, const std::byte* const* steps, const Q8Block* xs,
                            AllSums& sums) {
  constexpr bool is_signed = payload_bits(type) == 8 && V::kSignedDot;
  constexpr int halves = scheme_of(type) == Scheme::kSuper ? 2 : 1;
  constexpr int groups = 8 / halves;
  StepScales<V, type> scales[C];
  unroll<C>([&](auto c) SHOAL_INLINE_LAMBDA {
    scales[c].load(headers[c], steps[c]);
    scales[c].template shift_down<code_shift<V, type>()>();
  });
  unroll<halves>([&](auto half) SHOAL_INLINE_LAMBDA {
    typename V::I products[R][C];
    unroll<R>([&](auto r) SHOAL_INLINE_LAMBDA {
      const typename V::I start = int8_start<V, type, half>(xs[r]);
      unroll<C>([&](auto c) SHOAL_INLINE_LAMBDA { products[r][c] = start; });
    });
    unroll<groups>([&](auto i) SHOAL_INLINE_LAMBDA {
      constexpr int g = half * groups + i;
      typename V::I codes[C];
      unroll<C>([&](auto c)
                    SHOAL_INLINE_LAMBDA { codes[c] = code_group<V, type, g>(steps[c] + scale_bytes(type)); });
      unroll<R>([&](auto r) SHOAL_INLINE_LAMBDA {
        const typename V::I four = V::load_four(xs[r].q + 4 * g);
        unroll<C>([&](auto c) SHOAL_INLINE_LAMBDA {
          if constexpr (is_signed) {
            products[r][c] = V::dot_signed(products[r][c], codes[c], four);
          } else {
            products[r][c] = V::dot(products[r][c], codes[c], four);
          }
        });
      });
    });
    unroll<R>([&](auto r) SHOAL_INLINE_LAMBDA {
      unroll<C>([&](auto c) SHOAL_INLINE_LAMBDA {
        typename V::F t = V::mul(V::to_f(products[r][c]), half == 0 ? scales[c].first : scales[c].second);
        if constexpr (offset_of(type) == 0) t = V::fma(scales[c].minimum, &xs[r].sum, t);
        sums.now[r][c] = V::fma(t, &xs[r].scale, sums.now[r][c]);
      });
    });
  });
}

// R rows x C blocks straight from the packed bytes.
template <class V, DType type, int R, int C>
void int8_rows(const PanelArgs& a, std::int64_t block) {
  const Q8Block* x = reinterpret_cast<const Q8Block*>(a.x);
  Sums<V, R, C> sums;
  sums.start();
  walk<V, type, C>(
      a, block,
      [&](const std::byte* const* headers, const std::byte* const* steps, std::int64_t step)
          SHOAL_INLINE_LAMBDA { int8_step<V, type, R, C>(headers, steps, x + step * kGroupRows, sums); },
      [&] { sums.fold(); });
  sums.write(a, block * kBlockColumns);
}

}  // namespace shoal::kernels
