// A loop of one instruction in independent chains, for the files of ceilings_kernels.h; each has its own
// copy, built with its own flags.
//
// Thread-safety: pure.

#pragma once

#include <cstdint>

#include "kernels/unroll_inl.h"

namespace shoal::kernels {
namespace {

// `step(sum)` for each of `chains` sums, `rounds` times. The sums stay in registers: unrolled by hand,
// because a compiler that meets a loop over them keeps them in memory and then measures its stores.
template <int chains, class Vector, class Step>
void run_chains(std::int64_t rounds, Vector zero, Step step) {
  Vector sums[chains];
  unroll<chains>([&](auto i) SHOAL_INLINE_LAMBDA { sums[i] = zero; });
  for (std::int64_t round = 0; round < rounds; ++round) {
    unroll<chains>([&](auto i) SHOAL_INLINE_LAMBDA {
      Vector& sum = sums[i];
      step(sum);
      asm volatile("" : "+v"(sum));
    });
  }
}

}  // namespace
}  // namespace shoal::kernels
