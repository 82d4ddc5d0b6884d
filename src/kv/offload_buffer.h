// Host memory of one rank for pages of sequences that gave way: places for as many pages of each KV group,
// byte for byte as they lie in the pool.
//
// Thread-safety: none; it belongs to the rank's executor thread, which may copy different places on several
//   threads at once.
// Ownership: owns the memory. Address space until it is used: a place takes memory when a page is first put
//   there, and keeps it.
// Invariants: which place holds what is the head's to know (kv/offload_table.h); here are bytes only.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/expected.h"
#include "tensor/buffer.h"
#include "tensor/kv_layout.h"

namespace shoal::kv {

class OffloadBuffer {
 public:
  // layouts: of each group's pool. Fails with kExhausted where the system gives no memory.
  static Expected<OffloadBuffer> make(std::span<const KvLayout> layouts, std::int32_t places);

  std::int32_t places() const { return places_; }
  std::size_t page_bytes(std::size_t group) const { return page_bytes_[group]; }

  // Copies a page of the group between its slot in the pool and a place; both must exist.
  void put(std::size_t group, const KvView& pool, std::int32_t slot, std::int32_t place);
  void get(std::size_t group, const KvView& pool, std::int32_t slot, std::int32_t place) const;

 private:
  OffloadBuffer() = default;

  std::int32_t places_ = 0;
  std::vector<std::size_t> page_bytes_;
  std::vector<Buffer> buffers_;  // by group
};

}  // namespace shoal::kv
