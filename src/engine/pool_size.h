// How many KV pages a rank gets: asked for in pages or bytes, or a share of the memory that is free.
//
// Thread-safety: pure.

#pragma once

#include <cstddef>
#include <cstdint>

#include "core/expected.h"

namespace shoal::engine {

struct PoolRequest {
  std::int64_t kv_pages = 0;   // 0: by bytes
  std::int64_t kv_bytes = 0;   // both 0: by memory
  std::size_t page_bytes = 0;  // one page in every KV group
  std::int64_t context_pages = 0;
  std::int32_t max_sequences = 1;
  std::size_t available = 0;  // bytes
};

// Pages of each KV group's pool. By default half of the available memory, at least one full context where 90
// % of it hold that, and no more than all sequences could use at full context. Fails with kInvalidArgument
// naming the flag, or kExhausted where not one page fits.
Expected<std::int64_t> pool_pages(const PoolRequest& request);

}  // namespace shoal::engine
