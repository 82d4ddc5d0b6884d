#include "kernels/quantise.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/dequantise.h"

namespace shoal::kernels {
namespace {

constexpr int kBlock = 32;

// The loops below go over local arrays in steps a compiler can do 4 or more at a time.

// Bits of magnitudes order as integers, and the compiler may order those as it likes.
float largest_magnitude(const float* x) {
  std::int32_t largest = 0;
  for (int i = 0; i < kBlock; ++i) {
    const std::int32_t bits = std::bit_cast<std::int32_t>(x[i]) & 0x7fffffff;
    largest = bits > largest ? bits : largest;
  }
  return std::bit_cast<float>(largest);
}

// v within [low, high], and `middle` for NaN: an infinity in a block makes its others zeros times infinity.
// In other blocks only a denormal largest magnitude, whose inverse overflows, needs the bounds.
void bound(float low, float middle, float high, float* v) {
  for (int i = 0; i < kBlock; ++i) v[i] = v[i] == v[i] ? v[i] : middle;
  for (int i = 0; i < kBlock; ++i) v[i] = v[i] > high ? high : v[i];
  for (int i = 0; i < kBlock; ++i) v[i] = v[i] < low ? low : v[i];
}

void narrow(const std::int32_t* codes, std::uint8_t* out) {
  std::uint8_t bytes[kBlock];
  for (int i = 0; i < kBlock; ++i) bytes[i] = static_cast<std::uint8_t>(codes[i]);
  std::memcpy(out, bytes, sizeof(bytes));
}

// Codes -127 to 127 of the largest magnitude, halves away from zero.
WeightBlock quantise_q8_0(const float* x) {
  const float d = largest_magnitude(x) / 127;
  const float inverse = d != 0 ? 1 / d : 0;
  float v[kBlock];
  std::int32_t codes[kBlock];
  for (int i = 0; i < kBlock; ++i) v[i] = x[i] * inverse;
  bound(-127, 0, 127, v);
  // std::round() as a call would cost more than all the rest; what is cut off is exact.
  for (int i = 0; i < kBlock; ++i) codes[i] = static_cast<std::int32_t>(v[i]);
  for (int i = 0; i < kBlock; ++i) v[i] -= static_cast<float>(codes[i]);
  for (int i = 0; i < kBlock; ++i) codes[i] += 128 + static_cast<int>(v[i] >= 0.5F);
  for (int i = 0; i < kBlock; ++i) codes[i] -= static_cast<int>(v[i] <= -0.5F);
  WeightBlock out;
  out.d = f32_to_f16(d);
  narrow(codes, out.q);
  return out;
}

// The element of largest magnitude becomes code 0, -8, whatever its sign.
WeightBlock quantise_q4_0(const float* x) {
  const float magnitude = largest_magnitude(x);
  int first = 0;
  while (first < kBlock - 1 && std::fabs(x[first]) != magnitude) ++first;
  const float d = x[first] / -8;
  const float inverse = d != 0 ? 1 / d : 0;
  float v[kBlock];
  std::int32_t codes[kBlock];
  for (int i = 0; i < kBlock; ++i) v[i] = x[i] * inverse + 8.5F;
  bound(0, 8, 15, v);
  for (int i = 0; i < kBlock; ++i) codes[i] = static_cast<std::int32_t>(v[i]);
  WeightBlock out;
  out.d = f32_to_f16(d);
  narrow(codes, out.q);
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

WeightBlock quantise_block(DType type, const float* x) {
  return type == DType::kQ8_0 ? quantise_q8_0(x) : quantise_q4_0(x);
}

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

WeightBlock convert_block(DType from, DType to, const std::byte* row, std::int64_t k) {
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
  float values[kBlock];
  read_values(from, row, k, kBlock, values);
  return quantise_block(to, values);
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
