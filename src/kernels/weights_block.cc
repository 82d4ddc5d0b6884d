#include "kernels/weights_block.h"

#include <cstring>

namespace shoal::kernels {
namespace {

using Byte = std::uint8_t;

F16 half_at(const Byte* p) {
  F16 v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

// Codes are taken eight at a time.
using Eight = std::uint64_t;

Eight eight_at(const Byte* p) {
  Eight v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
void put_eight(Byte* q, Eight v) { std::memcpy(q, &v, sizeof(v)); }
constexpr Eight each(Byte value) { return value * 0x0101010101010101U; }
// Of each byte the bits of `mask`, a byte's lowest, from bit `shift` on.
Eight bits_of(Eight bytes, int shift, Byte mask) { return bytes >> shift & each(mask); }

// Sixteen bytes: low nibbles are elements 0 to 15, high nibbles 16 to 31.
void split_nibbles(const Byte* p, Byte* q) {
  for (int i = 0; i < 16; i += 8) {
    put_eight(q + i, bits_of(eight_at(p + i), 0, 0xf));
    put_eight(q + 16 + i, bits_of(eight_at(p + i), 4, 0xf));
  }
}

// A fifth bit for each of 32 codes, element i in bit i.
void add_fifth_bits(const Byte* p, Byte* q) {
  for (int i = 0; i < 4; ++i) {
    // Bit b of p[i] to bit b of byte b, then to its fifth.
    const Eight bits = p[i] * each(1) & 0x8040201008040201U;
    const Eight ones = (bits + each(0x7f)) >> 7 & each(1);  // carries only where the bit is set
    put_eight(q + 8 * i, eight_at(q + 8 * i) | ones << 4);
  }
}

// Factor and minimum of sub-block `sub` of Q4_K and Q5_K: eight pairs of 6 bits in 12 bytes, the upper two
// bits of the last four pairs riding on the first eight bytes.
void read_six_bit_pair(const Byte* s, int sub, WeightBlock& out) {
  int sc;
  int mn;
  if (sub < 4) {
    sc = s[sub] & 63;
    mn = s[sub + 4] & 63;
  } else {
    sc = (s[sub + 4] & 0xf) | (s[sub - 4] >> 6) << 4;
    mn = s[sub + 4] >> 4 | (s[sub] >> 6) << 4;
  }
  out.sc[0] = out.sc[1] = static_cast<std::int8_t>(sc);
  out.mn[0] = out.mn[1] = static_cast<Byte>(mn);
}

// In all K-quants of 256, sub is which 32 of the 256.
void read_q2_k(const Byte* p, int sub, WeightBlock& out) {
  const Byte* quants = p + 16 + sub / 4 * 32;
  for (int i = 0; i < 32; i += 8) put_eight(out.q + i, bits_of(eight_at(quants + i), 2 * (sub % 4), 3));
  for (int h = 0; h < 2; ++h) {
    out.sc[h] = static_cast<std::int8_t>(p[2 * sub + h] & 0xf);
    out.mn[h] = static_cast<Byte>(p[2 * sub + h] >> 4);
  }
  out.d = half_at(p + 80);
  out.m = half_at(p + 82);
}

void read_q3_k(const Byte* p, int sub, WeightBlock& out) {
  const Byte* high = p;
  const Byte* quants = p + 32 + sub / 4 * 32;
  const Byte* scales = p + 96;
  for (int i = 0; i < 32; i += 8) {
    put_eight(out.q + i, bits_of(eight_at(quants + i), 2 * (sub % 4), 3) | bits_of(eight_at(high + i), sub, 1)
                                                                               << 2);
  }
  for (int h = 0; h < 2; ++h) {
    const int s = 2 * sub + h;
    const int low = s < 8 ? scales[s] & 0xf : scales[s - 8] >> 4;
    const int up = scales[8 + s % 4] >> 2 * (s / 4) & 3;
    out.sc[h] = static_cast<std::int8_t>((low | up << 4) - 32);
  }
  out.d = half_at(p + 108);
}

void read_q45_k(const Byte* p, int sub, bool fifth, WeightBlock& out) {
  const Byte* quants = p + (fifth ? 48 : 16) + sub / 2 * 32;
  const int shift = sub % 2 * 4;
  for (int i = 0; i < 32; i += 8) {
    const Eight high = fifth ? bits_of(eight_at(p + 16 + i), sub, 1) << 4 : 0;
    put_eight(out.q + i, bits_of(eight_at(quants + i), shift, 0xf) | high);
  }
  read_six_bit_pair(p + 4, sub, out);
  out.d = half_at(p);
  out.m = half_at(p + 2);
}

void read_q6_k(const Byte* p, int sub, WeightBlock& out) {
  const Byte* low = p + sub / 4 * 64 + sub % 2 * 32;
  const Byte* high = p + 128 + sub / 4 * 32;
  const int low_shift = sub % 4 / 2 * 4;
  const int high_shift = sub % 4 * 2;
  for (int i = 0; i < 32; i += 8) {
    put_eight(out.q + i,
              bits_of(eight_at(low + i), low_shift, 0xf) | bits_of(eight_at(high + i), high_shift, 3) << 4);
  }
  std::memcpy(out.sc, p + 192 + 2 * sub, 2);
  out.d = half_at(p + 208);
}

void read_iq4_xs(const Byte* p, int sub, WeightBlock& out) {
  std::uint16_t high;
  std::memcpy(&high, p + 2, sizeof(high));
  const int low = p[4 + sub / 2] >> 4 * (sub % 2) & 0xf;
  out.sc[0] = out.sc[1] = static_cast<std::int8_t>((low | (high >> 2 * sub & 3) << 4) - 32);
  split_nibbles(p + 8 + 16 * sub, out.q);
  out.d = half_at(p);
}

}  // namespace

WeightBlock read_block(DType type, const std::byte* row, std::int64_t k) {
  const auto* p = reinterpret_cast<const Byte*>(row) + k / block_elements(type) * block_bytes(type);
  const int sub = static_cast<int>(k % block_elements(type) / 32);
  WeightBlock out;
  switch (type) {
    case DType::kQ4_0:
    case DType::kIQ4_NL:
      out.d = half_at(p);
      split_nibbles(p + 2, out.q);
      break;
    case DType::kQ4_1:
      out.d = half_at(p);
      out.m = half_at(p + 2);
      split_nibbles(p + 4, out.q);
      break;
    case DType::kQ5_0:
      out.d = half_at(p);
      split_nibbles(p + 6, out.q);
      add_fifth_bits(p + 2, out.q);
      break;
    case DType::kQ5_1:
      out.d = half_at(p);
      out.m = half_at(p + 2);
      split_nibbles(p + 8, out.q);
      add_fifth_bits(p + 4, out.q);
      break;
    case DType::kQ8_0:
      out.d = half_at(p);
      for (int i = 0; i < 32; i += 8) put_eight(out.q + i, eight_at(p + 2 + i) ^ each(0x80));
      break;
    case DType::kQ2_K:
      read_q2_k(p, sub, out);
      break;
    case DType::kQ3_K:
      read_q3_k(p, sub, out);
      break;
    case DType::kQ4_K:
      read_q45_k(p, sub, false, out);
      break;
    case DType::kQ5_K:
      read_q45_k(p, sub, true, out);
      break;
    case DType::kQ6_K:
      read_q6_k(p, sub, out);
      break;
    case DType::kIQ4_XS:
      read_iq4_xs(p, sub, out);
      break;
    default:
      break;
  }
  return out;
}

}  // namespace shoal::kernels
