#include "formats/synth_weights.h"

#include <array>
#include <cmath>
#include <cstring>

#include "core/mix64.h"
#include "tensor/half.h"

namespace shoal::formats {
namespace {

// Standard deviations of the integers that fill a block, uniform over their range: sqrt((n^2 - 1) / 12).
constexpr float kDeviation4 = 4.61F;     // 16 values
constexpr float kDeviation4Odd = 4.47F;  // -7..7, zero twice as likely
constexpr float kDeviation5 = 9.23F;     // 32 values
constexpr float kDeviation6 = 18.47F;    // 64 values
constexpr float kDeviation8 = 73.6F;     // -127..127
// Of the sum of four uniform 16-bit numbers: sqrt(4 x 65536^2 / 12).
constexpr float kDeviationSum = 37837.2F;
constexpr int kSumMean = 4 * 65535 / 2;

template <typename T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(T));
}

float approximately_normal(std::uint64_t word, float sigma) {
  const int sum =
      static_cast<int>((word & 0xffffU) + ((word >> 16) & 0xffffU) + ((word >> 32) & 0xffffU) + (word >> 48));
  return static_cast<float>(sum - kSumMean) * (sigma / kDeviationSum);
}

// A scale that varies by a quarter about `scale`, with a random sign.
float vary(float scale, std::uint64_t word) {
  const float u = static_cast<float>(word & 0xffffU) / 65536.0F;
  const float size = scale * (0.75F + 0.5F * u);
  return (word >> 63) != 0 ? -size : size;
}

void fill_bytes(std::uint64_t key, std::uint64_t counter, std::byte* out, std::size_t size) {
  std::size_t at = 0;
  for (; at + 8 <= size; at += 8) store(out + at, random_word(key, counter++));
  if (at < size) {
    const std::uint64_t word = random_word(key, counter);
    std::memcpy(out + at, &word, size - at);
  }
}

// No quantiser writes -128, and kernels that negate bytes may count on it.
void avoid_minus_128(std::byte* bytes, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    if (bytes[i] == std::byte{0x80}) bytes[i] = std::byte{0};
  }
}

// 0 stands for -8, which has no counterpart above: 8, which stands for zero, takes its place.
void avoid_nibble_0(std::byte* bytes, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    const auto b = std::to_integer<unsigned>(bytes[i]);
    const unsigned some = (b | b >> 1 | b >> 2 | b >> 3) & 0x11U;
    bytes[i] = static_cast<std::byte>(b | ((~some & 0x11U) << 3));
  }
}

// The 12 bytes of Q4_K and Q5_K: eight 6-bit scales, and the same eight numbers as minimums.
void pack_equal_scales_and_minimums(const std::array<unsigned, 8>& scales, std::byte* out) {
  for (std::size_t j = 0; j < 4; ++j) {
    const unsigned high = scales[j + 4] >> 4;
    out[j] = static_cast<std::byte>(scales[j] | high << 6);
    out[j + 4] = static_cast<std::byte>(scales[j] | high << 6);
    out[j + 8] = static_cast<std::byte>((scales[j + 4] & 0xfU) | (scales[j + 4] & 0xfU) << 4);
  }
}

// d, dmin and the packed scales of Q4_K (levels = 16) and Q5_K (32). With minimum = scale in every sub-block,
// dmin = d x (levels - 1) / 2 centres all of them on zero.
void k_scales(float sigma, float deviation, float levels, std::uint64_t word, std::byte* block) {
  // Sub-scales 32..63, 47.5 in the mean; real files use the upper half of the range too.
  const float d = std::fabs(vary(sigma / (deviation * 47.5F), word));
  std::array<unsigned, 8> scales{};
  for (std::size_t j = 0; j < scales.size(); ++j) scales[j] = 32U + ((word >> (16 + 5 * j)) & 31U);
  store(block, f32_to_f16(d));
  store(block + 2, f32_to_f16(d * (levels - 1.0F) / 2.0F));
  pack_equal_scales_and_minimums(scales, block + 4);
}

void q6_k_scales(std::uint64_t word, std::uint64_t more, float sigma, std::byte* block) {
  // 64..127 in size, 95.5 in the mean, of either sign; 7 bits each.
  std::byte* scales = block + 128 + 64;
  for (std::size_t j = 0; j < 16; ++j) {
    const std::uint64_t bits = j < 8 ? word >> (7 * j) : more >> (7 * (j - 8));
    const int size = 64 + static_cast<int>(bits & 63U);
    store(scales + j, static_cast<std::int8_t>((bits & 64U) != 0 ? -size : size));
  }
  store(scales + 16, f32_to_f16(std::fabs(vary(sigma / (kDeviation6 * 95.5F), more))));
}

// Puts scales into a block whose bytes are all random already.
void shape_block(DType type, float sigma, std::uint64_t word, std::uint64_t more, std::byte* block) {
  switch (type) {
    case DType::kQ8_0:
      avoid_minus_128(block + 2, 32);
      store(block, f32_to_f16(std::fabs(vary(sigma / kDeviation8, word))));
      return;
    case DType::kQ4_0:
      avoid_nibble_0(block + 2, 16);
      store(block, f32_to_f16(vary(sigma / kDeviation4Odd, word)));
      return;
    case DType::kQ4_1: {
      const float d = std::fabs(vary(sigma / kDeviation4, word));
      store(block, f32_to_f16(d));
      store(block + 2, f32_to_f16(-7.5F * d));
      return;
    }
    case DType::kQ5_0:
      store(block, f32_to_f16(vary(sigma / kDeviation5, word)));
      return;
    case DType::kQ5_1: {
      const float d = std::fabs(vary(sigma / kDeviation5, word));
      store(block, f32_to_f16(d));
      store(block + 2, f32_to_f16(-15.5F * d));
      return;
    }
    case DType::kQ4_K:
      k_scales(sigma, kDeviation4, 16.0F, word, block);
      return;
    case DType::kQ5_K:
      k_scales(sigma, kDeviation5, 32.0F, word, block);
      return;
    case DType::kQ6_K:
      q6_k_scales(word, more, sigma, block);
      return;
    default:
      return;
  }
}

template <typename T, typename Convert>
void fill_floats(std::uint64_t key, std::int64_t first, float sigma, std::span<std::byte> out,
                 Convert convert) {
  for (std::size_t i = 0; i * sizeof(T) < out.size(); ++i) {
    const auto counter = static_cast<std::uint64_t>(first) + i;
    store(out.data() + i * sizeof(T), T{convert(approximately_normal(random_word(key, counter), sigma))});
  }
}

}  // namespace

std::uint64_t random_word(std::uint64_t key, std::uint64_t counter) {
  // SplitMix64 at position `counter` of the sequence that starts at `key`.
  return mix64(key + (counter + 1) * 0x9e3779b97f4a7c15ULL);
}

bool can_synthesise(DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ8_0:
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kQ6_K:
      return true;
    default:
      return false;
  }
}

void fill_random(DType type, std::uint64_t key, std::int64_t first_block, float sigma,
                 std::span<std::byte> out) {
  if (type == DType::kF32) return fill_floats<float>(key, first_block, sigma, out, [](float f) { return f; });
  if (type == DType::kF16) return fill_floats<F16>(key, first_block, sigma, out, f32_to_f16);
  if (type == DType::kBF16) return fill_floats<Bf16>(key, first_block, sigma, out, f32_to_bf16);
  const auto bytes = static_cast<std::size_t>(block_bytes(type));
  // Payload words, then two for the scales.
  const std::uint64_t words = (bytes + 7) / 8 + 2;
  for (std::size_t i = 0; (i + 1) * bytes <= out.size(); ++i) {
    std::byte* block = out.data() + i * bytes;
    const std::uint64_t counter = (static_cast<std::uint64_t>(first_block) + i) * words;
    fill_bytes(key, counter, block, bytes);
    shape_block(type, sigma, random_word(key, counter + words - 2), random_word(key, counter + words - 1),
                block);
  }
}

}  // namespace shoal::formats
