// What `shoal bench kernel` measures: calls of single kernels with their operations and bytes.
//
// Thread-safety: none; a case runs on the pool of the context it was made with, by the thread that made it.
// Ownership: a case owns the memory it works on; the context must outlive it.
// Invariants: weights and KV are read from memory, not from a cache: each case holds several copies of what
//   it streams, more than half a gigabyte together, and rotates over them. Activations stay warm, as in a
//   forward pass.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/expected.h"
#include "kernels/ceilings.h"
#include "kernels/context.h"
#include "tensor/dtype.h"

namespace shoal::cli {

struct KernelCase {
  std::string kernel;  // "matmul q8_0", "attention decode"
  std::string shape;   // "2048 x 8192, 512 rows"
  double flops = 0;    // of one call
  double bytes = 0;    // of one call: weights or KV from memory; for row-wise work what it reads and writes
  const kernels::Ceiling* compute = nullptr;
  std::function<void()> call;  // owns its data
};

struct MatmulShape {
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
};

// One case for each count of rows, all over the same packed weights. Fails with kExhausted, or kUnsupported
// for a type without a kernel.
Expected<std::vector<KernelCase>> matmul_cases(const kernels::Context& context,
                                               const kernels::Ceilings& ceilings, DType type,
                                               MatmulShape shape, const std::vector<std::int64_t>& rows);

struct AttentionCaseShape {
  std::int32_t query_heads = 32;
  std::int32_t kv_heads = 8;
  std::int32_t head_dim = 64;
  std::int32_t sequences = 1;
  std::int32_t rows = 1;   // new tokens of each sequence
  std::int32_t depth = 0;  // tokens before them
};

Expected<KernelCase> attention_case(const kernels::Context& context, const kernels::Ceilings& ceilings,
                                    const AttentionCaseShape& shape);

// Norms, gate, rotary positions, on `rows` rows of a model of the given widths. Bound by caches, not by
// memory.
Expected<std::vector<KernelCase>> elementwise_cases(const kernels::Context& context,
                                                    const kernels::Ceilings& ceilings, std::int64_t rows,
                                                    std::int64_t hidden, std::int64_t ffn);

}  // namespace shoal::cli
