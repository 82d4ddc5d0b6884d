#include "kernels/quantise.h"

#include <cstring>

#include "kernels/dequantise.h"
#include "kernels/quantise_inl.h"

namespace shoal::kernels {
namespace {

constexpr QuantiseKernels kScalar = {quantise_as, quantise_bf16_as};

WeightBlock as_block(const Quantised& from) {
  WeightBlock out;
  out.d = f32_to_f16(from.d);
  std::memcpy(out.q, from.q, sizeof(out.q));
  return out;
}

// The block that holds element k, and 32 elements from there as floats.
void read_values(DType from, const std::byte* row, std::int64_t k, std::int64_t n, float* out) {
  if (from == DType::kBF16) {
    std::uint16_t halves[kBlock];
    std::memcpy(halves, row + 2 * k, static_cast<std::size_t>(2 * n));
    for (std::int64_t i = 0; i < n; ++i) out[i] = bf16_to_f32(halves[i]);
    return;
  }
  const std::int64_t block = block_elements(from);
  if (block <= kBlock) return dequantise_row(from, row + row_bytes(from, k), n, out);
  block_to_f32(from, read_block(from, row, k), out);
}

}  // namespace

bool can_quantise(DType type) { return type == DType::kQ4_0 || type == DType::kQ8_0; }

const QuantiseKernels& quantise_kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) return kQuantiseAvx512;
  if (isa >= Isa::kAvx2) return kQuantiseAvx2;
#endif
  (void)isa;
  return kScalar;
}

WeightBlock quantise_block(DType type, const float* x) { return as_block(quantise_as(type, x)); }

void quantise_row(DType type, const float* x, std::int64_t n, std::byte* out) {
  for (std::int64_t k = 0; k < n; k += kBlock, out += block_bytes(type)) {
    const WeightBlock block = quantise_block(type, x + k);
    std::memcpy(out, &block.d, sizeof(block.d));
    auto* codes = reinterpret_cast<std::uint8_t*>(out) + sizeof(block.d);
    if (type == DType::kQ8_0) {
      for (int i = 0; i < kBlock; ++i) codes[i] = block.q[i] ^ 0x80;
    } else {
      for (int i = 0; i < kBlock / 2; ++i)
        codes[i] = static_cast<std::uint8_t>(block.q[i] | block.q[i + kBlock / 2] << 4);
    }
  }
}

DType packed_type(DType type) {
  switch (type) {
    case DType::kQ2_K:
      return DType::kF16;
    case DType::kQ3_K:
      return DType::kQ6_K;
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
      return DType::kQ8_0;
    default:
      return type;
  }
}

bool can_convert(DType from, DType to) {
  if (from == to || to == packed_type(from)) return true;
  if (!can_dequantise(from)) return false;
  return to == DType::kF32 || to == DType::kF16 || to == DType::kBF16 || can_quantise(to);
}

WeightBlock convert_block(DType from, DType to, const std::byte* row, std::int64_t k, Isa isa) {
  if (from == to) return read_block(from, row, k);
  if (from == DType::kQ3_K && to == DType::kQ6_K) {
    WeightBlock block = read_block(from, row, k);
    for (std::uint8_t& q : block.q)
      q = static_cast<std::uint8_t>(q - offset_of(DType::kQ3_K) + offset_of(DType::kQ6_K));
    return block;
  }
  if (to == DType::kQ8_0 && scheme_of(from) == Scheme::kTable) {
    WeightBlock block = read_block(from, row, k);
    for (std::uint8_t& q : block.q) q = static_cast<std::uint8_t>(kLevels[q] + 128);
    if (block.sc[0] != 1) block.d = f32_to_f16(f16_to_f32(block.d) * static_cast<float>(block.sc[0]));
    block.sc[0] = block.sc[1] = 1;
    return block;
  }
  const QuantiseKernels& kernels = quantise_kernels(isa);
  if (from == DType::kBF16) return as_block(kernels.bf16(to, row, k));
  float values[kBlock];
  read_values(from, row, k, kBlock, values);
  return as_block(kernels.f32(to, values));
}

void convert_values(DType from, DType to, const std::byte* row, std::int64_t k, std::int64_t n,
                    std::byte* out) {
  float values[kBlock];
  read_values(from, row, k, n, values);
  if (to == DType::kF32) {
    std::memcpy(out, values, static_cast<std::size_t>(n) * sizeof(float));
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint16_t half = to == DType::kF16 ? f32_to_f16(values[i]) : f32_to_bf16(values[i]);
    std::memcpy(out + 2 * i, &half, sizeof(half));
  }
}

}  // namespace shoal::kernels
