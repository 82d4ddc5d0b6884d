// Row-wise work between matrix products: norms, rotary positions, gated activations, residual sums.
//
// Thread-safety: calls run on the context's pool and belong to one executor thread.
// Invariants: a row's bits depend on that row alone, and on the ISA: sums inside a row follow a fixed order.
//   All tensors are row-major f32.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/context.h"
#include "tensor/matrix.h"

namespace shoal::kernels {

// y = x / rms(x) * weight; rms over the row, eps inside the root. y may be x. weight: [columns].
void rms_norm(const Context& context, MatrixView<const float> x, std::span<const float> weight, float eps,
              MatrixView<float> y);

// x += delta, then y = norm(x): the residual sum and the norm that follows it in one pass. y must not be x.
void add_rms_norm(const Context& context, MatrixView<float> x, MatrixView<const float> delta,
                  std::span<const float> weight, float eps, MatrixView<float> y);

// x += delta.
void add(const Context& context, MatrixView<float> x, MatrixView<const float> delta);
// x += bias in every row. bias: [columns].
void add_bias(const Context& context, MatrixView<float> x, std::span<const float> bias);

// RMS norm of each head on its own (QK norm). x: [rows, heads * head_dim]; weight: [head_dim].
void head_rms_norm(const Context& context, MatrixView<float> x, std::int32_t head_dim,
                   std::span<const float> weight, float eps);

// Rotary position embedding. Angles come from inverse frequencies computed once from the model's description,
// in double precision.
struct Rope {
  // [rotary_dim / 2]: radians per position of each pair, scaling applied.
  std::vector<float> inverse_frequency;
  // YaRN's magnitude, 1 otherwise.
  float magnitude = 1;
  // true: pairs (2i, 2i + 1), GGUF's llama; false: pairs (i, i + rotary_dim / 2), as in Hugging Face files.
  bool adjacent_pairs = true;
};

// x: [rows, heads * head_dim], rotated in place; positions: [rows]. Dimensions past rotary_dim stay.
void apply_rope(const Context& context, const Rope& rope, MatrixView<float> x, std::int32_t head_dim,
                std::span<const std::int32_t> positions);

enum class GatedActivation : std::uint8_t { kSilu, kGeluTanh };

// y = act(gate) * up. gate, up, y: [rows, ffn]; y may be gate.
void gated_activation(const Context& context, GatedActivation kind, MatrixView<const float> gate,
                      MatrixView<const float> up, MatrixView<float> y);

}  // namespace shoal::kernels
