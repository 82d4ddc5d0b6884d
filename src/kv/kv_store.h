// The bytes of one rank's KV pools: one buffer and one view per KV group.
//
// Thread-safety: the bytes belong to the rank's executor thread; sizes may be read from any thread.
// Ownership: owns the memory; views must not outlive it.

#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/expected.h"
#include "core/thread_pool.h"
#include "tensor/buffer.h"
#include "tensor/kv_layout.h"

namespace shoal::kv {

class KvStore {
 public:
  // layouts: of each group's pool, slots set. banks: room behind each pool's layers for so many more layers,
  // in which pages of other coordinates land while a layer attends to them: address space, of which only what
  // lands takes memory. Fails with kExhausted where the system gives no memory.
  static Expected<KvStore> make(std::span<const KvLayout> layouts, std::int32_t banks = 0);

  // Has the system give memory for the first slots of every layer and head, which are given out first: 2,048
  // tokens. In huge pages a model of 16 layers and 8 heads takes 512 MB for its first token, which would else
  // wait for them to be zeroed. Once, before anything lies there.
  static constexpr std::int32_t kTouchedSlots = 64;
  void touch_first(ThreadPool& pool);

  std::span<const KvView> views() const { return views_; }
  std::size_t bytes() const { return bytes_; }

 private:
  KvStore() = default;

  std::vector<Buffer> buffers_;
  std::vector<KvView> views_;
  std::size_t bytes_ = 0;
};

}  // namespace shoal::kv
