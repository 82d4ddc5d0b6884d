// The reference: the same sums in plain C++ from a step taken apart into codes and scales, independent of the
// vector code. Products are rounded before they are added (no fused operation is assumed), so bits differ
// from the other sets.

#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/matmul_kernels.h"
#include "tensor/half.h"

namespace shoal::kernels {
namespace {

using Byte = std::uint8_t;

// One step of one block: 32 inputs of 16 outputs. Value = code * scale + minimum.
struct Step {
  std::int32_t code[32][16];
  float scale[2][16];  // inputs 0-15, 16-31
  float minimum[16];
};

float half_at(const Byte* p, int index) {
  F16 h;
  std::memcpy(&h, p + 2 * index, sizeof(h));
  return f16_to_f32(h);
}

void read_codes(DType type, const Byte* payload, Step& out) {
  const int bits = payload_bits(type);
  for (int k = 0; k < 32; ++k) {
    const int group = k / 4;
    for (int c = 0; c < 16; ++c) {
      const int byte = 4 * c + k % 4;
      int code = 0;
      if (bits == 8) {
        code = payload[64 * group + byte];
      } else {
        code = payload[64 * (group / 2) + byte] >> 4 * (group % 2) & 0xf;
        if (bits == 5) code |= (payload[256 + byte] >> group & 1) << 4;
        if (bits == 6) code |= (payload[256 + 64 * (group / 4) + byte] >> 2 * (group % 4) & 3) << 4;
      }
      out.code[k][c] = code - offset_of(type);
    }
  }
}

void read_step(DType type, const Byte* header, const Byte* step, Step& out) {
  for (int c = 0; c < 16; ++c) {
    out.minimum[c] = 0;
    switch (scheme_of(type)) {
      case Scheme::kScaleMin:
        out.minimum[c] = half_at(step + 32, c);
        [[fallthrough]];
      case Scheme::kScale:
        out.scale[0][c] = out.scale[1][c] = half_at(step, c);
        break;
      case Scheme::kSuperMin:
        out.scale[0][c] = out.scale[1][c] = half_at(header, c) * static_cast<float>(step[c]);
        out.minimum[c] = -(half_at(header + 32, c) * static_cast<float>(step[16 + c]));
        break;
      case Scheme::kSuper:
        for (int h = 0; h < 2; ++h) {
          out.scale[h][c] =
              half_at(header, c) * static_cast<float>(static_cast<std::int8_t>(step[16 * h + c]));
        }
        break;
      default:
        break;
    }
  }
  read_codes(type, step + scale_bytes(type), out);
}

float plain_weight(DType type, const Byte* payload, int k, int c) {
  if (type == DType::kF32) {
    float f;
    std::memcpy(&f, payload + 64 * k + 4 * c, sizeof(f));
    return f;
  }
  if (type == DType::kF16) return half_at(payload + 32 * k, c);
  Bf16 b;
  std::memcpy(&b, payload + 64 * (k / 2) + 4 * c + 2 * (k % 2), sizeof(b));
  return bf16_to_f32(b);
}

// weights[k][c], values as dequantise_row gives them.
void read_weights(DType type, const Byte* header, const Byte* step, float (*weights)[16]) {
  if (scheme_of(type) == Scheme::kNone) {
    for (int k = 0; k < 32; ++k) {
      for (int c = 0; c < 16; ++c) weights[k][c] = plain_weight(type, step, k, c);
    }
    return;
  }
  Step parts;
  read_step(type, header, step, parts);
  const bool has_minimum = offset_of(type) == 0;
  for (int k = 0; k < 32; ++k) {
    for (int c = 0; c < 16; ++c) {
      const float product = static_cast<float>(parts.code[k][c]) * parts.scale[k / 16][c];
      weights[k][c] = has_minimum ? product + parts.minimum[c] : product;
    }
  }
}

// For every block: f(header, step, step index) along K, fold() at the end of each segment, done(block).
template <typename F, typename Fold, typename Done>
void walk(DType type, const PanelArgs& a, F&& f, Fold&& fold, Done&& done) {
  for (std::int64_t block = 2 * a.pair_begin; block < 2 * a.pair_end; ++block) {
    const Byte* at =
        reinterpret_cast<const Byte*>(a.blocks) + static_cast<std::size_t>(block) * a.block_bytes;
    std::int64_t step = 0;
    for (std::int64_t i = 0; i < a.run_count; ++i) {
      const Byte* header = at;
      at += header_bytes(type);
      for (int s = 0; s < a.runs[i].steps; ++s, ++step, at += step_bytes(type)) f(header, at, step);
      if (a.runs[i].ends_segment) fold();
    }
    done(block);
  }
}

// Sums of a few rows x 16 outputs; the segment at hand apart from those before it.
constexpr std::int64_t kRows = kGroupRows;
struct Sums {
  float now[kRows][16] = {};
  float total[kRows][16] = {};
  bool folded = false;

  void fold() {
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < 16; ++c) {
        total[r][c] = folded ? total[r][c] + now[r][c] : now[r][c];
        now[r][c] = 0;
      }
    }
    folded = true;
  }
  void write(const PanelArgs& a, std::int64_t block, std::int64_t row, std::int64_t rows) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < 16 && block * 16 + c < a.columns; ++c) {
        a.y[(row + r) * a.y_stride + block * 16 + c] = total[r][c];
      }
    }
    *this = Sums{};
  }
};

template <DType type>
void f32_panel(const PanelArgs& a) {
  const auto* x = reinterpret_cast<const float*>(a.x);
  for (std::int64_t row = 0; row < a.rows; row += kRows) {
    const std::int64_t rows = a.rows - row < kRows ? a.rows - row : kRows;
    Sums sums;
    walk(
        type, a,
        [&](const Byte* header, const Byte* step, std::int64_t index) {
          float weights[32][16];
          read_weights(type, header, step, weights);
          for (std::int64_t r = 0; r < rows; ++r) {
            const float* xs = x + ((row * a.steps + index * kGroupRows) + r) * kStepInputs;
            for (int k = 0; k < 32; ++k) {
              for (int c = 0; c < 16; ++c) sums.now[r][c] += weights[k][c] * xs[k];
            }
          }
        },
        [&] { sums.fold(); }, [&](std::int64_t block) { sums.write(a, block, row, rows); });
  }
}

template <DType type>
void int8_panel(const PanelArgs& a) {
  const auto* x = reinterpret_cast<const Q8Block*>(a.x);
  constexpr int kHalves = scheme_of(type) == Scheme::kSuper ? 2 : 1;
  for (std::int64_t row = 0; row < a.rows; row += kRows) {
    const std::int64_t rows = a.rows - row < kRows ? a.rows - row : kRows;
    Sums sums;
    walk(
        type, a,
        [&](const Byte* header, const Byte* step, std::int64_t index) {
          Step parts;
          read_step(type, header, step, parts);
          for (std::int64_t r = 0; r < rows; ++r) {
            const Q8Block& xb = x[row * a.steps + index * kGroupRows + r];
            for (int half = 0; half < kHalves; ++half) {
              std::int32_t products[16] = {};
              for (int k = half * 16; k < (half + 1) * 32 / kHalves; ++k) {
                for (int c = 0; c < 16; ++c) products[c] += parts.code[k][c] * xb.q[k];
              }
              for (int c = 0; c < 16; ++c) {
                float t = static_cast<float>(products[c]) * parts.scale[half][c];
                if (offset_of(type) == 0) t += parts.minimum[c] * xb.sum;
                sums.now[r][c] += t * xb.scale;
              }
            }
          }
        },
        [&] { sums.fold(); }, [&](std::int64_t block) { sums.write(a, block, row, rows); });
  }
}

void quantise_block(const float* x, Q8Block& out) {
  std::uint32_t largest = 0;
  for (int i = 0; i < 32; ++i) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffU;
    largest = magnitude > largest ? magnitude : largest;
  }
  const float amax = std::bit_cast<float>(largest);
  out = Q8Block{};
  if (largest >= 0x7f800000U) {
    out.scale = std::bit_cast<float>(0x7fc00000U);
    return;
  }
  if (amax < kSmallestQuantised) return;
  const float inverse = 127.0F / amax;
  out.scale = amax / 127.0F;
  std::int32_t low = 0;
  std::int32_t all = 0;
  for (int i = 0; i < 32; ++i) {
    const auto q = static_cast<std::int32_t>(std::nearbyint(x[i] * inverse));
    out.q[i] = static_cast<std::int8_t>(q);
    all += q;
    if (i < 16) low += q;
  }
  out.sum = static_cast<float>(all);
  out.start = -128 * all;
  out.start_low = -128 * low;
}

}  // namespace

PanelKernel f32_kernel_scalar(DType type) {
  switch (type) {
#define SHOAL_CASE(name) \
  case DType::name:      \
    return f32_panel<DType::name>;
    SHOAL_PACKED_TYPES(SHOAL_CASE)
#undef SHOAL_CASE
    default:
      return nullptr;
  }
}

PanelKernel int8_kernel_scalar(DType type) {
  switch (type) {
#define SHOAL_CASE(name) \
  case DType::name:      \
    return int8_panel<DType::name>;
    SHOAL_QUANTISED_TYPES(SHOAL_CASE)
#undef SHOAL_CASE
    default:
      return nullptr;
  }
}

void quantise_rows_scalar(const FormArgs& args, std::int64_t step_begin, std::int64_t step_end) {
  for_each_form_step(args, step_begin, step_end, [](const float* x, std::int64_t, std::byte* out) {
    quantise_block(x, *reinterpret_cast<Q8Block*>(out));
  });
}

}  // namespace shoal::kernels
