// Loops whose counter is a constant in each turn, so that arrays indexed by it live in registers. (A pragma
// unrolls after the compiler has decided where arrays live.)
//
// Thread-safety: pure.

#pragma once

#include <utility>

namespace shoal::kernels {

#define SHOAL_INLINE inline __attribute__((always_inline))
// Behind a lambda's parameters. Left to itself the compiler makes calls of some, with vectors through memory.
#define SHOAL_INLINE_LAMBDA __attribute__((always_inline))

template <typename F, int... kIndex>
SHOAL_INLINE void unroll_indices(F&& f, std::integer_sequence<int, kIndex...>) {
  (f(std::integral_constant<int, kIndex>()), ...);
}
// f(integral_constant 0), ... f(integral_constant n - 1).
template <int n, typename F>
SHOAL_INLINE void unroll(F&& f) {
  unroll_indices(f, std::make_integer_sequence<int, n>());
}

}  // namespace shoal::kernels
