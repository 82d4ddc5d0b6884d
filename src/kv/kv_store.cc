#include "kv/kv_store.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>

namespace shoal::kv {

Expected<KvStore> KvStore::make(std::span<const KvLayout> layouts, std::int32_t banks) {
  KvStore store;
  for (const KvLayout& layout : layouts) {
    KvLayout with_banks = layout;
    with_banks.layers += banks;
    // Pages that have landed are named by slots counted from the layer that attends.
    if (std::int64_t{with_banks.layers} * layout.kv_heads * 2 * layout.slots >
        std::numeric_limits<std::int32_t>::max())
      return Status(ErrorCode::kExhausted,
                    fmt::format("{} pages of {} layers and {} heads are more than a pool with context "
                                "parallelism can name: use fewer, or cut the model by tp or pp, too",
                                layout.slots, layout.layers, layout.kv_heads));
    SHOAL_ASSIGN(buffer, Buffer::allocate(with_banks.pool_bytes(), "KV pool"));
    store.views_.push_back({buffer.data(), layout});
    store.bytes_ += with_banks.pool_bytes();
    store.buffers_.push_back(std::move(buffer));
  }
  return store;
}

}  // namespace shoal::kv
