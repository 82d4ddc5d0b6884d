// What this machine gives at most: bytes a second from memory, operations a second of the instructions that
// the kernels are made of. Benchmarks measure it in their own run and report shares of it.
//
// Thread-safety: measure_ceilings() runs on the context's pool and belongs to one executor thread.
// Ownership: a Ceilings is a value; the memory that is read is freed before the call returns.
// Invariants: best of five for each figure, because others on a shared machine can only slow it down; each
// core
//   is measured alone and all together, because cores of a virtual machine may be two threads of one.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"
#include "kernels/context.h"
#include "tensor/dtype.h"

namespace shoal::kernels {

struct Ceiling {
  std::string name;           // "read", "amx bf16"
  std::vector<double> alone;  // of single threads: all of up to eight, else eight spread over the pool
  double together = 0;        // of the whole pool at once

  // together / best alone: what a kernel can gain from all threads at most. 1 for a pool of one.
  double scaling() const;
};

struct Ceilings {
  Ceiling read;                  // GB/s, from memory beyond the caches
  std::vector<Ceiling> compute;  // TFLOP/s or TOP/s, two for a multiply and add; "f32 fma" always among them

  // The named one; null where this machine or the chosen instruction set lacks it.
  const Ceiling* find(std::string_view name) const;
};

// About a second and 1 GiB (256 MiB where the machine has less than 8 GiB), or as many bytes as are asked
// for. Only instructions up to context.isa. Fails with kExhausted where there is no memory to read.
Expected<Ceilings> measure_ceilings(const Context& context, std::size_t read_bytes = 0);

// Which compute ceiling bounds products with `rows` rows of activations and weights of `type`: the fastest
// instruction that the chosen path could use ("amx bf16", "int8 dot", "f32 fma").
const Ceiling& ceiling_of(const Ceilings& ceilings, DType type, std::int64_t rows);

}  // namespace shoal::kernels
