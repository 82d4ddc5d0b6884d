// The mixing step of counter-based noise: splitmix64's output function (Steele, Lea, Flood 2014, with
// Stafford's constants), a bijection of 64 bits in which every input bit moves every output bit.
//
// Thread-safety: pure functions.

#pragma once

#include <cstdint>

namespace shoal::kernels {
namespace {  // each including file has its own copy, built with its own flags

inline constexpr std::uint64_t kNoiseStep = 0x9e3779b97f4a7c15U;  // 2^64 / golden ratio, odd
inline constexpr std::uint64_t kNoiseMultiplier1 = 0xbf58476d1ce4e5b9U;
inline constexpr std::uint64_t kNoiseMultiplier2 = 0x94d049bb133111ebU;

inline constexpr std::uint64_t mix_noise(std::uint64_t z) {
  z = (z ^ (z >> 30)) * kNoiseMultiplier1;
  z = (z ^ (z >> 27)) * kNoiseMultiplier2;
  return z ^ (z >> 31);
}

inline constexpr std::uint64_t noise_of(std::uint64_t key, std::int64_t token) {
  return mix_noise(key + static_cast<std::uint64_t>(token + 1) * kNoiseStep);
}

}  // namespace
}  // namespace shoal::kernels
