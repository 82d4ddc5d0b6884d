// What every block of a forward pass is given besides its input.
//
// Thread-safety: belongs to the executor thread for the length of one pass.
// Ownership: borrows everything.

#pragma once

#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "parallel/peers.h"

namespace shoal::model {

struct Pass {
  const kernels::Context& kernels;
  kernels::MatmulScratch& matmul;
  std::span<const kernels::Rope> ropes;
  float norm_eps = 0;
  std::span<const std::int32_t> positions;  // [rows]
  parallel::Peers* peers = nullptr;         // null where the rank is alone
};

}  // namespace shoal::model
