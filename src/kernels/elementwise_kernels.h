// What an instruction set provides for row-wise work: one row at a time; elementwise.cc deals the rows.
//
// Thread-safety: the tables are constant; functions touch only what they are given.
// Invariants: sums inside a row follow an order fixed by the vector width and the number of columns.

#pragma once

#include <cstdint>

#include "kernels/elementwise.h"
#include "kernels/isa.h"

namespace shoal::kernels {

struct ElementwiseKernels {
  // y[0 .. n) = x / rms(x) * weight. y may be x.
  void (*rms_norm_row)(const float* x, const float* weight, std::int64_t n, float eps, float* y);
  // x += delta, then as above.
  void (*add_rms_norm_row)(float* x, const float* delta, const float* weight, std::int64_t n, float eps,
                           float* y);
  void (*add_row)(float* x, const float* delta, std::int64_t n);
  // cosine, sine: [rotary_dim / 2], times the magnitude. Rotates each of `heads` heads of head_dim.
  void (*rope_row_adjacent)(float* x, std::int64_t heads, std::int32_t head_dim, std::int32_t pairs,
                            const float* cosine, const float* sine);
  void (*rope_row_halves)(float* x, std::int64_t heads, std::int32_t head_dim, std::int32_t pairs,
                          const float* cosine, const float* sine);
  void (*silu_row)(const float* gate, const float* up, std::int64_t n, float* y);
  void (*gelu_tanh_row)(const float* gate, const float* up, std::int64_t n, float* y);
};

const ElementwiseKernels& elementwise_kernels(Isa isa);

extern const ElementwiseKernels kElementwiseScalar;
extern const ElementwiseKernels kElementwiseAvx2;
extern const ElementwiseKernels kElementwiseAvx512;

}  // namespace shoal::kernels
