// What every kernel call is given: the threads, the instruction set, the numerics that were asked for.
//
// Thread-safety: a context belongs to one executor thread; kernels called with it use its pool.
// Ownership: borrows the pool; owns nothing else.

#pragma once

#include "core/thread_pool.h"
#include "kernels/isa.h"

namespace shoal::kernels {

// --activations. kAuto rounds activations to 8 bits per block of 32 for quantised weights, and to bf16 where
// tiles multiply; kF32 keeps them, for comparisons with oracles.
enum class Activations : std::uint8_t { kAuto, kF32 };

struct Context {
  ThreadPool* pool = nullptr;
  Isa isa = Isa::kScalar;
  Activations activations = Activations::kAuto;
  // --deterministic: one kernel per matrix whatever the number of rows, and the sums of docs/execution.md.
  bool strict = false;
};

}  // namespace shoal::kernels
