#include "comm/bf16_parts.h"

#include <cstring>

namespace shoal::comm {
namespace {

// Eight at a time, in registers of any machine: scalar loops took four times as long.
using Words = std::uint32_t __attribute__((vector_size(32)));
using Floats = float __attribute__((vector_size(32)));
using Halves = std::uint16_t __attribute__((vector_size(16)));
constexpr std::int64_t kLanes = 8;

void widen(const Bf16* from, Floats& to) {
  Halves halves;
  std::memcpy(&halves, from, sizeof halves);
  const Words words = __builtin_convertvector(halves, Words) << 16;
  std::memcpy(&to, &words, sizeof to);
}

void round(const float* from, Bf16* to) {
  Words bits;
  std::memcpy(&bits, from, sizeof bits);
  const Words rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const Words quiet = (bits >> 16) | 0x40U;
  const auto nan = (bits & 0x7fffffffU) > 0x7f800000U;
  const Words words = nan ? quiet : rounded;
  const Halves halves = __builtin_convertvector(words, Halves);
  std::memcpy(to, &halves, sizeof halves);
}

}  // namespace

void round_to_bf16(const float* from, std::int64_t n, Bf16* to) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) round(from + i, to + i);
  for (; i < n; ++i) to[i] = f32_to_bf16(from[i]);
}

void widen_bf16(const Bf16* from, std::int64_t n, float* to) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Floats wide;
    widen(from + i, wide);
    std::memcpy(to + i, &wide, sizeof wide);
  }
  for (; i < n; ++i) to[i] = bf16_to_f32(from[i]);
}

void add_bf16_parts(std::span<const Bf16* const> parts, std::int64_t n, float* out) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Floats sum;
    widen(parts.front() + i, sum);
    for (const Bf16* part : parts.subspan(1)) {
      Floats more;
      widen(part + i, more);
      sum += more;
    }
    std::memcpy(out + i, &sum, sizeof sum);
  }
  for (; i < n; ++i) {
    float sum = bf16_to_f32(parts.front()[i]);
    for (const Bf16* part : parts.subspan(1)) sum += bf16_to_f32(part[i]);
    out[i] = sum;
  }
}

}  // namespace shoal::comm
