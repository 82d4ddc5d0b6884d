// Products of many rows: a piece of a pair's weights is taken apart once, into L1, and all rows of the chunk
// pass over it. Included by one file per instruction set, behind its vector type V (matmul_inl.h).
//
// Beside what matmul_inl.h asks for, V gives kDirectRows (up to so many rows skip all this), kBlockRows (rows
// at once), stream(pointer, F) past the caches and fence_streams(); Codes<type> with kPlanes (of unpacked
// codes, 1 KiB a step each) and put(codes, out); multiply<terms, Codes, R>(unpacked, steps, x, sums, ahead):
// R rows of sums [8][32] += their products with unpacked steps.

#pragma once

#include "kernels/matmul_inl.h"

namespace shoal::kernels {

// What one step adds to a sum beside code x activation.
enum class Terms : std::uint8_t {
  kOffset,   // codes are stored above zero by offset_of
  kMinimum,  // the minimum times the sum of the activations
  kHalves,   // kOffset with a scale for each 16 inputs
};
constexpr Terms terms_of(DType type) {
  if (scheme_of(type) == Scheme::kSuper) return Terms::kHalves;
  return offset_of(type) == 0 ? Terms::kMinimum : Terms::kOffset;
}

// Unpacked int8 step: codes [plane][block 2][group 8][64], f32 scale [block 2][16], f32 second scale or
// minimum [block 2][16]. 8 steps of 1 KiB codes are 10 KiB: with as much again of packed weights on their way
// and the rows' activations they stay in 48 KiB (and in 32).
inline constexpr std::int64_t kInt8BlockSteps = 8;
constexpr std::int64_t int8_step_bytes(int planes) { return 1024 * planes + 256; }
// Unpacked f32 step: [input 32][block 2][16], 4 KiB.
inline constexpr std::int64_t kF32BlockSteps = 4;
inline constexpr std::int64_t kF32StepBytes = 4096;
static_assert(kInt8BlockSteps * int8_step_bytes(2) <= kUnpackedBytes);
static_assert(kF32BlockSteps * kF32StepBytes <= kUnpackedBytes);

// The packed bytes of the next piece, fetched while this one is multiplied: evenly over all of its rows, so
// that memory is never idle and the line buffers never full.
struct Ahead {
  const std::byte* at[2] = {nullptr, nullptr};
  std::int64_t lines = 0;  // left of each
  std::int64_t lines_per_step = 0;
  const std::byte* x = nullptr;  // activations of the next group, from L2

  template <int lines>
  SHOAL_INLINE void x_step(std::int64_t bytes) {
    unroll<lines>([&](auto i) SHOAL_INLINE_LAMBDA { prefetch(x + 64 * i); });
    x += bytes;
  }

  SHOAL_INLINE void step() {
    const std::int64_t n = lines < lines_per_step ? lines : lines_per_step;
    for (std::int64_t i = 0; i < n; ++i) {
      prefetch(at[0] + 64 * i);
      prefetch(at[1] + 64 * i);
    }
    at[0] += 64 * n;
    at[1] += 64 * n;
    lines -= n;
  }
};

// The sums of all rows of a chunk for one pair, [rows][32]: what the segments so far gave together, and the
// one at hand. Between passes over K the former wait in y. Cleared and folded group by group, while in L1.
template <class V>
class PairSums {
 public:
  PairSums(const PanelArgs& a, std::int64_t pair)
      : a_(a),
        total_(reinterpret_cast<float*>(a.scratch + kUnpackedBytes)),
        segment_(total_ + kMostRows * kPairColumns),
        column_(pair * kPairColumns) {}

  // The first segment adds up where the total of all will be.
  float* of_segment(std::int64_t row, bool first) { return (first ? total_ : segment_) + row * kPairColumns; }

  static SHOAL_INLINE void clear(float* sums, std::int64_t rows) {
    for (std::int64_t i = 0; i < rows * kPairColumns; i += kBlockColumns) V::store(sums + i, V::zero_f());
  }
  SHOAL_INLINE void fold(std::int64_t row, std::int64_t rows) {
    float* to = total_ + row * kPairColumns;
    const float* from = segment_ + row * kPairColumns;
    for (std::int64_t i = 0; i < rows * kPairColumns; i += kBlockColumns)
      V::store(to + i, V::add(V::load_f(to + i), V::load_f(from + i)));
  }

  void load_total() {
    float* to = total_;
    for (std::int64_t r = 0; r < a_.rows; ++r, to += kPairColumns) {
      const float* y = a_.y + r * a_.y_stride + column_;
      for (std::int64_t i = 0; i < kPairColumns && column_ + i < a_.columns; ++i) to[i] = y[i];
    }
  }
  // last: y is complete.
  void write_total(bool last) {
    const float* from = total_;
    for (std::int64_t r = 0; r < a_.rows; ++r, from += kPairColumns) {
      float* y = a_.y + r * a_.y_stride + column_;
      if (column_ + kPairColumns > a_.columns) {
        for (std::int64_t i = 0; column_ + i < a_.columns; ++i) y[i] = from[i];
      } else if (last && a_.rows >= kStreamRows && (reinterpret_cast<std::uintptr_t>(y) & 63) == 0) {
        V::stream(y, V::load_f(from));
        V::stream(y + kBlockColumns, V::load_f(from + kBlockColumns));
      } else {
        V::store(y, V::load_f(from));
        V::store(y + kBlockColumns, V::load_f(from + kBlockColumns));
      }
    }
  }

 private:
  // From this many rows on, y as a whole leaves L2 before it is read: its lines go past the caches, or rows
  // that lie a power of two apart push each other out before they are full.
  static constexpr std::int64_t kStreamRows = 48;

  const PanelArgs& a_;
  float* total_;
  float* segment_;
  std::int64_t column_;
};

// Steps of one pass over K, and the first run in it.
struct Pass {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t run = 0;
};

// Where the segment ends that starts at `step` with `run`; `run` moves behind it.
SHOAL_INLINE std::int64_t segment_end(const PanelArgs& a, std::int64_t step, std::int64_t& run) {
  while (true) {
    step += a.runs[run].steps;
    if (a.runs[run++].ends_segment) return step;
  }
}

// Steps [begin, end) of one segment (or of a part of the only one), for all rows of one pair.
struct Span {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool first = true;       // of the segments
  bool continues = false;  // what an earlier pass began
};

// Piece by piece. Block gives kSteps (of a piece), kHeaderBytes, kPieceLines (of its packed bytes),
// kXStepBytes (of a group of rows), unpack(header, step, block of the pair, out) and multiply(rows, unpacked,
// steps, x of a group, sums, ahead).
template <class V, class Block>
void block_steps(const PanelArgs& a, const Pass& pass, std::int64_t pair, const Span& span,
                 PairSums<V>& sums) {
  const std::byte* base = a.blocks + 2 * static_cast<std::size_t>(pair) * a.block_bytes;
  const std::int64_t parts = (a.rows + V::kBlockRows - 1) / V::kBlockRows;
  for (std::int64_t step = span.begin; step < span.end; step += Block::kSteps) {
    const std::int64_t steps = span.end - step < Block::kSteps ? span.end - step : Block::kSteps;
    const bool pass_goes_on = step + steps < pass.end;
    // Behind the last piece of a pass comes the next pair's first; where there is none, some lines in vain.
    const std::byte* next =
        (pass_goes_on ? base + a.step_at[step + steps] : base + 2 * a.block_bytes + a.step_at[pass.begin]) -
        Block::kHeaderBytes;
    Ahead ahead{{next, next + a.block_bytes}, Block::kPieceLines, 0, nullptr};
    // With few rows unpacking is a good part of the time: memory must not rest meanwhile.
    const std::int64_t turns = (parts + (parts <= 2 ? 1 : 0)) * steps;
    ahead.lines_per_step = (ahead.lines + turns - 1) / turns;
    for (std::int64_t s = 0; s < steps; ++s) {
      if (parts <= 2) ahead.step();
      for (int c = 0; c < 2; ++c) {
        const std::byte* block = base + c * a.block_bytes;
        Block::unpack(block + a.header_at[step + s], block + a.step_at[step + s], c,
                      a.scratch + s * Block::kStepBytes);
      }
    }
    for (std::int64_t row = 0; row < a.rows; row += kGroupRows) {
      const std::int64_t rows = a.rows - row < kGroupRows ? a.rows - row : kGroupRows;
      const std::byte* x = a.x + (row / kGroupRows * a.steps + step) * Block::kXStepBytes;
      ahead.x = row + kGroupRows < a.rows
                    ? x + a.steps * Block::kXStepBytes
                    : a.x + (pass_goes_on ? step + steps : pass.begin) * Block::kXStepBytes;
      float* to = sums.of_segment(row, span.first);
      if (step == span.begin && !span.continues) sums.clear(to, rows);
      Block::multiply(rows, a.scratch, steps, x, to, ahead);
      if (step + steps == span.end && !span.first) sums.fold(row, rows);
    }
  }
}

// K in passes whose activations fit beside everything else in L2; in a pass every pair in turn. A pass ends
// at the end of a segment, or anywhere where all of K is one.
template <class V, class Block>
void block_panel(const PanelArgs& a) {
  const std::int64_t groups = (a.rows + kGroupRows - 1) / kGroupRows;
  std::int64_t fitting = kPassBytes / (groups * Block::kXStepBytes) / Block::kSteps * Block::kSteps;
  if (fitting < Block::kSteps) fitting = Block::kSteps;
  std::int64_t runs = 0;
  const bool one_segment = segment_end(a, 0, runs) == a.steps;
  for (Pass pass; pass.begin < a.steps; pass.begin = pass.end, pass.run = runs) {
    runs = pass.run;
    if (one_segment) {
      pass.end = a.steps - pass.begin < fitting ? a.steps : pass.begin + fitting;
    } else {
      pass.end = segment_end(a, pass.begin, runs);
      for (std::int64_t run = runs; pass.end < a.steps; runs = run) {
        const std::int64_t end = segment_end(a, pass.end, run);
        if (end - pass.begin > fitting) break;
        pass.end = end;
      }
    }
    const bool last = pass.end == a.steps;
    for (std::int64_t pair = a.pair_begin; pair < a.pair_end; ++pair) {
      PairSums<V> sums(a, pair);
      if (pass.begin > 0) sums.load_total();
      if (one_segment) {
        block_steps<V, Block>(a, pass, pair, {pass.begin, pass.end, true, pass.begin > 0}, sums);
      } else {
        for (std::int64_t step = pass.begin, run = pass.run; step < pass.end;) {
          const std::int64_t end = segment_end(a, step, run);
          block_steps<V, Block>(a, pass, pair, {step, end, step == 0, false}, sums);
          step = end;
        }
      }
      sums.write_total(last);
    }
  }
  V::fence_streams();
}

// f(first row, R) for parts of `rows`, R a constant. Seven rows cost more in parts than all eight: the
// group has room for the one that is not there, and nobody reads its sums.
template <int kMost, typename F>
SHOAL_INLINE void split_rows(std::int64_t rows, F&& f) {
  std::int64_t row = 0;
  if constexpr (kMost == 8) {
    if (rows > 6) return f(row, std::integral_constant<int, 8>());
  }
  for (; rows - row > 2; row += 4) f(row, std::integral_constant<int, 4>());
  if (rows - row == 2) f(row, std::integral_constant<int, 2>());
  if (rows - row == 1) f(row, std::integral_constant<int, 1>());
}

template <class V, DType type>
struct Int8Block {
  using Codes = typename V::template Codes<type>;
  static constexpr std::int64_t kSteps = kInt8BlockSteps;
  static constexpr std::int64_t kStepBytes = int8_step_bytes(Codes::kPlanes);
  static constexpr std::int64_t kHeaderBytes = header_bytes(type);
  static constexpr std::int64_t kPieceLines = (kSteps * step_bytes(type) + kHeaderBytes) / 64 + 1;
  static constexpr std::int64_t kXStepBytes = kGroupRows * static_cast<std::int64_t>(sizeof(Q8Block));

  static SHOAL_INLINE void unpack(const std::byte* header, const std::byte* step, int c, std::byte* out) {
    StepScales<V, type> scales;
    scales.load(header, step);
    scales.template shift_down<code_shift<V, type>()>();
    auto* to = reinterpret_cast<float*>(out + 1024 * Codes::kPlanes) + 16 * c;
    V::store(to, scales.first);
    if constexpr (terms_of(type) == Terms::kHalves) V::store(to + 32, scales.second);
    if constexpr (terms_of(type) == Terms::kMinimum) V::store(to + 32, scales.minimum);
    unroll<8>([&](auto g) SHOAL_INLINE_LAMBDA {
      Codes::put(code_group<V, type, g>(step + scale_bytes(type)), out + 512 * c + 64 * g);
    });
  }

  static void multiply(std::int64_t rows, const std::byte* unpacked, std::int64_t steps, const std::byte* x,
                       float* sums, Ahead& ahead) {
    split_rows<V::kBlockRows>(rows, [&](std::int64_t row, auto count) {
      V::template multiply<terms_of(type), Codes, count>(
          unpacked, steps, reinterpret_cast<const Q8Block*>(x) + row, sums + row * kPairColumns, ahead);
    });
  }
};

// R rows x C blocks from one unpacked piece of f32 weights.
template <class V, int R, int C>
void f32_multiply(const float* w, std::int64_t steps, const float* x, float* sums, Ahead& ahead) {
  typename V::F now[R][C];
  unroll<R>([&](auto r) SHOAL_INLINE_LAMBDA {
    unroll<C>([&](auto c) SHOAL_INLINE_LAMBDA { now[r][c] = V::load_f(sums + r * kPairColumns + 16 * c); });
  });
  for (std::int64_t s = 0; s < steps; ++s, x += kGroupRows * kStepInputs) {
    ahead.step();
    for (int k = 0; k < kStepInputs; k += 4, w += 4 * kPairColumns) {
      unroll<4>([&](auto i) SHOAL_INLINE_LAMBDA {
        typename V::F weights[C];
        unroll<C>([&](auto c) SHOAL_INLINE_LAMBDA { weights[c] = V::load_f(w + i * kPairColumns + 16 * c); });
        unroll<R>([&](auto r) SHOAL_INLINE_LAMBDA {
          unroll<C>([&](auto c) SHOAL_INLINE_LAMBDA {
            now[r][c] = V::fma(weights[c], x + r * kStepInputs + k + i, now[r][c]);
          });
        });
      });
    }
  }
  unroll<R>([&](auto r) SHOAL_INLINE_LAMBDA {
    unroll<C>([&](auto c) SHOAL_INLINE_LAMBDA { V::store(sums + r * kPairColumns + 16 * c, now[r][c]); });
  });
}

template <class V, DType type>
struct F32Block {
  static constexpr std::int64_t kSteps = kF32BlockSteps;
  static constexpr std::int64_t kStepBytes = kF32StepBytes;
  static constexpr std::int64_t kHeaderBytes = header_bytes(type);
  static constexpr std::int64_t kPieceLines = (kSteps * step_bytes(type) + kHeaderBytes) / 64 + 1;
  static constexpr std::int64_t kXStepBytes =
      kGroupRows * kStepInputs * static_cast<std::int64_t>(sizeof(float));

  static SHOAL_INLINE void unpack(const std::byte* header, const std::byte* step, int c, std::byte* out) {
    auto* to = reinterpret_cast<float*>(out) + 16 * c;
    for_each_weight<V, type>(header, step, [&](auto k, typename V::F w) SHOAL_INLINE_LAMBDA {
      V::store(to + k * kPairColumns, w);
    });
  }

  static void multiply(std::int64_t rows, const std::byte* unpacked, std::int64_t steps, const std::byte* x,
                       float* sums, Ahead& ahead) {
    split_rows<V::kBlockRows>(rows, [&](std::int64_t row, auto count) {
      for (int c = 0; c < 2; c += V::kBlocks) {
        f32_multiply<V, count, V::kBlocks>(reinterpret_cast<const float*>(unpacked) + 16 * c, steps,
                                           reinterpret_cast<const float*>(x) + row * kStepInputs,
                                           sums + row * kPairColumns + 16 * c, ahead);
      }
    });
  }
};

// Few rows: each pair straight from the packed bytes.
template <class V, DType type, int R>
void int8_direct(const PanelArgs& a) {
  for (std::int64_t pair = a.pair_begin; pair < a.pair_end; ++pair) int8_rows<V, type, R, 2>(a, 2 * pair);
}
template <class V, DType type, int R>
void f32_direct(const PanelArgs& a) {
  for (std::int64_t pair = a.pair_begin; pair < a.pair_end; ++pair) f32_rows<V, type, R, 2>(a, 2 * pair);
}

template <class V, DType type>
void int8_panel(const PanelArgs& a) {
  if (a.rows == 1) return int8_direct<V, type, 1>(a);
  if (a.rows == 2) return int8_direct<V, type, 2>(a);
  if constexpr (V::kDirectRows >= 4) {
    if (a.rows == 3) return int8_direct<V, type, 3>(a);
    if (a.rows == 4) return int8_direct<V, type, 4>(a);
  }
  block_panel<V, Int8Block<V, type>>(a);
}

template <class V, DType type>
void f32_panel(const PanelArgs& a) {
  if constexpr (scheme_of(type) == Scheme::kNone) {
    if (a.rows == 1) return f32_direct<V, type, 1>(a);
    if (a.rows == 2) return f32_direct<V, type, 2>(a);
  }
  block_panel<V, F32Block<V, type>>(a);
}

template <class V>
PanelKernel f32_kernel(DType type) {
  switch (type) {
#define SHOAL_CASE(name) \
  case DType::name:      \
    return f32_panel<V, DType::name>;
    SHOAL_PACKED_TYPES(SHOAL_CASE)
#undef SHOAL_CASE
    default:
      return nullptr;
  }
}

template <class V>
PanelKernel int8_kernel(DType type) {
  switch (type) {
#define SHOAL_CASE(name) \
  case DType::name:      \
    return int8_panel<V, DType::name>;
    SHOAL_QUANTISED_TYPES(SHOAL_CASE)
#undef SHOAL_CASE
    default:
      return nullptr;
  }
}

}  // namespace shoal::kernels
