#include "kv/kv_store.h"

namespace shoal::kv {

Expected<KvStore> KvStore::make(std::span<const KvLayout> layouts) {
  KvStore store;
  for (const KvLayout& layout : layouts) {
    SHOAL_ASSIGN(buffer, Buffer::allocate(layout.pool_bytes(), "KV pool"));
    store.views_.push_back({buffer.data(), layout});
    store.bytes_ += layout.pool_bytes();
    store.buffers_.push_back(std::move(buffer));
  }
  return store;
}

}  // namespace shoal::kv
