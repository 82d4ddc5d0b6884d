// The arithmetic of quantise.cc, for each instruction set: plain loops over local arrays in steps that a
// compiler does 4 to 16 at a time.
//
// Thread-safety: pure functions.
// Invariants: the same bits in every variant: no sum is reordered and nothing is fused.

#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/quantise_kernels.h"

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
Quantised quantise_q8_0(const float* x) {
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
  Quantised out;
  out.d = d;
  narrow(codes, out.q);
  return out;
}

// The element of largest magnitude becomes code 0, -8, whatever its sign.
Quantised quantise_q4_0(const float* x) {
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
  Quantised out;
  out.d = d;
  narrow(codes, out.q);
  return out;
}

inline Quantised quantise_as(DType to, const float* x) {
  return to == DType::kQ8_0 ? quantise_q8_0(x) : quantise_q4_0(x);
}

inline Quantised quantise_bf16_as(DType to, const std::byte* row, std::int64_t k) {
  std::uint16_t halves[kBlock];
  std::memcpy(halves, row + 2 * k, sizeof(halves));
  std::uint32_t bits[kBlock];
  for (int i = 0; i < kBlock; ++i) bits[i] = static_cast<std::uint32_t>(halves[i]) << 16;
  float values[kBlock];
  std::memcpy(values, bits, sizeof(values));
  return quantise_as(to, values);
}

}  // namespace
}  // namespace shoal::kernels
