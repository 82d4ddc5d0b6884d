// How many KV pages a rank gets: asked for in pages or bytes, or a share of the memory that is free; and how
// many it may keep for sequences that gave way.
//
// Thread-safety: pure.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

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

// How many pages of each KV group a rank's offload buffer holds.
struct OffloadRequest {
  std::optional<std::int64_t> bytes;  // none: room for a quarter of the pool
  std::int64_t kv_pages = 0;          // of each group's pool
  std::size_t page_bytes = 0;         // one page in every KV group, on the rank where that is most
};

// 0 where none are to be kept. Fails with kInvalidArgument naming the flag.
Expected<std::int32_t> offload_places(const OffloadRequest& request);

}  // namespace shoal::engine
