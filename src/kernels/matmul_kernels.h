// The innermost products, one set per instruction set: a range of column pairs of one packed matrix times all
// rows of one chunk of activations. matmul.cc chooses and deals; these compute.
//
// Thread-safety: pure functions of their arguments; calls on disjoint pairs may run at once.
// Invariants:
//   1. In a path the operations of one output are the same, in the same order, for every number of rows and
//      for AVX2 and AVX-512: inputs ascending, a chain from zero per segment, segments added in order.
//   2. Nothing is allocated.

#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/pack_layout.h"

namespace shoal::kernels {

// The types that can be packed, for tables of kernels.
#define SHOAL_QUANTISED_TYPES(X) X(kQ4_0) X(kQ4_1) X(kQ5_0) X(kQ5_1) X(kQ8_0) X(kQ4_K) X(kQ5_K) X(kQ6_K)
#define SHOAL_PACKED_TYPES(X) X(kF32) X(kF16) X(kBF16) SHOAL_QUANTISED_TYPES(X)

// 32 activations of one row as 8-bit codes, value = q * scale. Blocks with an infinity or NaN have scale NaN
// and codes 0, so that the whole row becomes NaN and no other does.
struct Q8Block {
  std::int8_t q[32];
  float scale;
  float sum;               // of all q, for formats with a minimum
  std::int32_t start;      // -128 times the sum of all q: where integer sums with codes of offset 128 begin
  std::int32_t start_low;  // the same over the first 16
};
static_assert(sizeof(Q8Block) == 48);

// Blocks whose largest activation is below this count as zeros: 127 / amax would overflow near 2^-121, and a
// block of that size adds nothing to any sum of a model.
inline constexpr float kSmallestQuantised = 0x1p-100F;

// Inputs of one segment, for the functions that bring activations into a kernel's form.
struct RowSegment {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t first_step = 0;
};

// Rows of activations that lie together: a group holds all its rows' values of one step, then the next step.
// So a kernel reaches every row of a group from one pointer, and a group's values of a piece of K are one run
// of memory whatever K is (rows a power of two apart would share the same few sets of L1).
inline constexpr std::int64_t kGroupRows = 8;

struct PanelArgs {
  const std::byte* blocks = nullptr;
  std::size_t block_bytes = 0;
  const Run* runs = nullptr;
  std::int64_t run_count = 0;
  std::int64_t steps = 0;
  std::int64_t pair_begin = 0;
  std::int64_t pair_end = 0;
  // Where in a block each step and its run's header start; steps entries each. For kernels that do not walk
  // the runs from the start.
  const std::uint32_t* step_at = nullptr;
  const std::uint32_t* header_at = nullptr;
  // Activations in the path's form: f32 [ceil(rows / 8)][steps][8][32], Q8Block [ceil(rows / 8)][steps][8],
  // or bf16 tiles [ceil(rows / 16)][steps][16][32]. Surplus rows of tiles are zeros; others may
  // be read, their sums are not used.
  const std::byte* x = nullptr;
  std::int64_t rows = 0;
  float* y = nullptr;
  std::int64_t y_stride = 0;
  std::int64_t columns = 0;      // of y
  std::byte* scratch = nullptr;  // kScratchBytes of this thread's own, aligned to 64
};

// Brings rows [0, rows) of x (row stride x_stride) into a form. Row r of step s goes to out + r * row_bytes +
// s * step_bytes; the tail of a segment's last step is zeros.
struct FormArgs {
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  std::int64_t rows = 0;
  const RowSegment* segments = nullptr;
  std::int64_t segment_count = 0;
  std::byte* out = nullptr;
  std::int64_t row_bytes = 0;
  std::int64_t step_bytes = 0;
};

using PanelKernel = void (*)(const PanelArgs&);
// Steps [step_begin, step_end) only.
using FormRows = void (*)(const FormArgs&, std::int64_t step_begin, std::int64_t step_end);

// Null where the type has no kernel of that kind. The files for an instruction set this build has not
// compiled give null for all.
PanelKernel f32_kernel_scalar(DType type);
PanelKernel int8_kernel_scalar(DType type);
void quantise_rows_scalar(const FormArgs& args, std::int64_t step_begin, std::int64_t step_end);

PanelKernel f32_kernel_avx2(DType type);
PanelKernel int8_kernel_avx2(DType type);
void quantise_rows_avx2(const FormArgs& args, std::int64_t step_begin, std::int64_t step_end);

PanelKernel f32_kernel_avx512(DType type);
PanelKernel int8_kernel_avx512(DType type);
void quantise_rows_avx512(const FormArgs& args, std::int64_t step_begin, std::int64_t step_end);

// bf16, 64 bytes a row and step.
void round_rows_avx512bf16(const FormArgs& args, std::int64_t step_begin, std::int64_t step_end);

// Calls f(x of row r and step s, inputs there, where it goes) for the steps of a range, rows inside steps:
// writing row by row, a few bytes every KiB, takes 25 times as long.
template <typename F>
void for_each_form_step(const FormArgs& args, std::int64_t step_begin, std::int64_t step_end, F&& f) {
  for (std::int64_t i = 0; i < args.segment_count; ++i) {
    const RowSegment& segment = args.segments[i];
    const std::int64_t steps = (segment.end - segment.begin + kStepInputs - 1) / kStepInputs;
    std::int64_t from = step_begin - segment.first_step;
    if (from < 0) from = 0;
    for (std::int64_t s = from; s < steps && segment.first_step + s < step_end; ++s) {
      const std::int64_t k = segment.begin + s * kStepInputs;
      const std::int64_t left = segment.end - k;
      std::byte* out = args.out + (segment.first_step + s) * args.step_bytes;
      for (std::int64_t r = 0; r < args.rows; ++r) {
        f(args.x + r * args.x_stride + k, left < kStepInputs ? left : kStepInputs, out + r * args.row_bytes);
      }
    }
  }
}

// bf16 tiles, weights unpacked to bf16 on their way; x in bf16 tiles, at most kAmxRows rows at once.
inline constexpr std::int64_t kAmxRows = 256;
// Two blocks of unpacked weights, 16 KiB each, and 32 x 32 sums for every 32 rows.
inline constexpr std::int64_t kAmxScratchBytes = 2 * 16384 + kAmxRows / 32 * 4096;
PanelKernel amx_kernel(DType type);

// Vector kernels: a piece of a pair's weights taken apart (kUnpackedBytes of it, in L1), and twice the sums
// of all rows of a chunk for that pair.
inline constexpr std::int64_t kUnpackedBytes = 18432;
inline constexpr std::int64_t kMostRows = 256;
inline constexpr std::int64_t kBlockScratchBytes = kUnpackedBytes + 2 * kMostRows * kPairColumns * 4;
inline constexpr std::int64_t kScratchBytes =
    kAmxScratchBytes > kBlockScratchBytes ? kAmxScratchBytes : kBlockScratchBytes;
// Activations of one pass over K: half of L2.
inline constexpr std::int64_t kPassBytes = std::int64_t{1} << 20;

}  // namespace shoal::kernels
