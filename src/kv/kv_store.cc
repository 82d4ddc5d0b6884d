#include "kv/kv_store.h"

#include <fmt/format.h>

#include <algorithm>
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

void KvStore::touch_first(ThreadPool& pool) {
  constexpr std::size_t kSmallPage = 4096;
  for (const KvView& view : views_) {
    const KvLayout& layout = view.layout;
    const std::int64_t slabs = std::int64_t{2} * layout.layers * layout.kv_heads;
    const std::size_t bytes =
        layout.tile_bytes() * static_cast<std::size_t>(std::min(layout.slots, kTouchedSlots));
    pool.parallel_for(slabs, 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t slab = begin; slab < end; ++slab) {
        std::byte* first = view.base + static_cast<std::size_t>(slab) * layout.slab_bytes();
        // Zero is what a page holds that was never written.
        for (std::size_t at = 0; at < bytes; at += kSmallPage)
          *static_cast<volatile std::byte*>(first + at) = std::byte{0};
      }
    });
  }
}

}  // namespace shoal::kv
