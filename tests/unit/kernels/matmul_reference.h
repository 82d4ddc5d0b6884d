// Random weights of every packed type, and what a product with them should give, for the matmul tests.

#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/dequantise.h"
#include "kernels/isa.h"
#include "kernels/matmul.h"
#include "tensor/half.h"

namespace shoal::kernels {

// Every instruction set this machine can run.
inline std::vector<Isa> tested_isas() {
  std::vector<Isa> all;
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    if (isa <= detected_isa()) all.push_back(isa);
  }
  // Tiles are emulated where there are none (amx_kernel_amx.cc); what goes around them is AVX-512 with bf16.
  if (all.back() == Isa::kAvx512 && has_bf16_dot()) all.push_back(Isa::kAmx);
  return all;
}

inline constexpr DType kPackedTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ4_0,
                                         DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,
                                         DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

// Bytes of one row of n weights, of a size around 0.05.
inline std::vector<std::byte> random_row(DType type, std::int64_t n, std::mt19937& random) {
  std::vector<std::byte> row(static_cast<std::size_t>(row_bytes(type, n)));
  for (std::byte& b : row) b = static_cast<std::byte>(random());
  std::uniform_real_distribution<float> plain(-0.1F, 0.1F);
  const auto put_half = [&](std::size_t at, float value) {
    const F16 h = f32_to_f16(value);
    std::memcpy(row.data() + at, &h, sizeof(h));
  };
  if (!is_quantised(type)) {
    for (std::int64_t i = 0; i < n; ++i) {
      const float value = plain(random);
      if (type == DType::kF32) std::memcpy(row.data() + 4 * i, &value, 4);
      if (type == DType::kF16) put_half(static_cast<std::size_t>(2 * i), value);
      if (type == DType::kBF16) {
        const Bf16 b = f32_to_bf16(value);
        std::memcpy(row.data() + 2 * i, &b, 2);
      }
    }
    return row;
  }
  // Codes and integer factors may be anything; the half-precision scales must be sane.
  const auto block = static_cast<std::size_t>(block_bytes(type));
  for (std::size_t at = 0; at < row.size(); at += block) {
    switch (type) {
      case DType::kQ4_1:
      case DType::kQ5_1:
        put_half(at, plain(random) * 0.1F);
        put_half(at + 2, plain(random));
        break;
      case DType::kQ4_K:
      case DType::kQ5_K:
        put_half(at, plain(random) * 0.003F);
        put_half(at + 2, plain(random) * 0.01F);
        break;
      case DType::kQ6_K:
        put_half(at + 208, plain(random) * 0.0005F);
        break;
      default:
        put_half(at, plain(random) * (type == DType::kQ8_0 ? 0.01F : 0.1F));
    }
  }
  return row;
}

// A weight matrix as a file would hold it, with padding between the rows, and its values.
struct TestMatrix {
  DType type;
  std::int64_t n;
  std::int64_t k;
  std::int64_t stride;
  std::vector<std::byte> bytes;
  std::vector<float> values;  // [n, k]

  TestMatrix(DType t, std::int64_t rows, std::int64_t columns, std::mt19937& random)
      : type(t), n(rows), k(columns), stride(row_bytes(t, columns) + 7) {
    bytes.resize(static_cast<std::size_t>(n * stride));
    values.resize(static_cast<std::size_t>(n * k));
    for (std::int64_t r = 0; r < n; ++r) {
      const std::vector<std::byte> row = random_row(type, k, random);
      std::memcpy(bytes.data() + r * stride, row.data(), row.size());
      dequantise_row(type, row.data(), k, values.data() + r * k);
    }
  }
  WeightSource source() const { return {type, bytes.data(), n, k, stride}; }
};

struct Exact {
  double value = 0;
  double magnitude = 0;  // sum of |x * w|: what rounding errors scale with
};

inline Exact exact_dot(const float* w, const float* x, std::int64_t k) {
  Exact e;
  for (std::int64_t i = 0; i < k; ++i) {
    e.value += static_cast<double>(w[i]) * x[i];
    e.magnitude += std::abs(static_cast<double>(w[i]) * x[i]);
  }
  return e;
}

inline std::vector<float> random_activations(std::int64_t n, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(n));
  for (float& v : x) v = normal(random);
  return x;
}

}  // namespace shoal::kernels
