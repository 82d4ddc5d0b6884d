// The feed-forward block of many rows without its wide intermediate: gate and up of a few columns at a time,
// their gated product, and straight from the caches the form in which the second product reads it.
//
// Written out, gate and up are 64 KiB a row of a 1B model: at 512 tokens twice 16 MiB a layer that go to
// memory and come back, between kernels that need the same memory for weights.
//
// Thread-safety: as matmul().
// Invariants: the bits are those of matmul(), gated_activation() and matmul() one after the other.

#pragma once

#include <cstdint>

#include "kernels/context.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "tensor/matrix.h"

namespace shoal::kernels {

// gate_up: two parts of equal height stacked, gate first.
struct FeedForward {
  const PackedMatrix& gate_up;
  const PackedMatrix& down;
  GatedActivation activation = GatedActivation::kSilu;
};

// Whether feed_forward() takes it: parts and K segments of down in whole steps of 32, and rows enough to
// gain.
bool takes_feed_forward(const FeedForward& block, std::int64_t rows);

// y = down * (act(gate * x) * (up * x)). x: [rows, K], y: [rows, down.rows()]. Where no memory is left for
// what lies between, all of y becomes NaN.
void feed_forward(const Context& context, MatmulScratch& scratch, const FeedForward& block,
                  MatrixView<const float> x, MatrixView<float> y);

}  // namespace shoal::kernels
