// A set of a worker's (cp, dp) coordinates.
//
// Thread-safety: a value.

#pragma once

#include <bit>
#include <cstdint>

namespace shoal {

class CoordinateSet {
 public:
  static constexpr std::int32_t kMost = 64;  // coordinates of a worker

  constexpr CoordinateSet() = default;
  constexpr explicit CoordinateSet(std::uint64_t bits) : bits_(bits) {}
  static constexpr CoordinateSet of(std::int32_t coordinate) {
    return CoordinateSet(std::uint64_t{1} << coordinate);
  }
  // Coordinates 0 to count - 1.
  static constexpr CoordinateSet first(std::int32_t count) {
    return CoordinateSet(count >= kMost ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1);
  }

  constexpr std::uint64_t bits() const { return bits_; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr std::int32_t count() const { return std::popcount(bits_); }
  constexpr bool has(std::int32_t coordinate) const { return (bits_ >> coordinate & 1) != 0; }
  constexpr bool includes(CoordinateSet other) const { return (other.bits_ & ~bits_) == 0; }
  constexpr bool meets(CoordinateSet other) const { return (other.bits_ & bits_) != 0; }
  constexpr void add(CoordinateSet other) { bits_ |= other.bits_; }
  constexpr void add(std::int32_t coordinate) { add(of(coordinate)); }
  friend constexpr bool operator==(CoordinateSet, CoordinateSet) = default;

 private:
  std::uint64_t bits_ = 0;
};

}  // namespace shoal
