// splitmix64's last step: neighbouring numbers give unrelated ones. For spreading, not for secrets.
//
// Thread-safety: pure.

#pragma once

#include <cstdint>

namespace shoal {

constexpr std::uint64_t mix64(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

}  // namespace shoal
