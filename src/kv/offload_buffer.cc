#include "kv/offload_buffer.h"

#include <cstring>

namespace shoal::kv {
namespace {

// Calls f(tile) for each tile of a page, in the order in which a place holds them.
template <typename F>
void each_tile(const KvView& pool, std::int32_t slot, F&& f) {
  const KvLayout& layout = pool.layout;
  for (std::int32_t layer = 0; layer < layout.layers; ++layer) {
    for (std::int32_t head = 0; head < layout.kv_heads; ++head) {
      f(pool.base + layout.k_tile(layer, head, slot));
      f(pool.base + layout.v_tile(layer, head, slot));
    }
  }
}

}  // namespace

Expected<OffloadBuffer> OffloadBuffer::make(std::span<const KvLayout> layouts, std::int32_t places) {
  OffloadBuffer buffer;
  buffer.places_ = places;
  for (const KvLayout& layout : layouts) {
    SHOAL_ASSIGN(memory, Buffer::allocate(layout.page_bytes() * static_cast<std::size_t>(places),
                                          "pages of sequences that gave way"));
    buffer.page_bytes_.push_back(layout.page_bytes());
    buffer.buffers_.push_back(std::move(memory));
  }
  return buffer;
}

void OffloadBuffer::put(std::size_t group, const KvView& pool, std::int32_t slot, std::int32_t place) {
  std::byte* to = buffers_[group].data() + page_bytes_[group] * static_cast<std::size_t>(place);
  const std::size_t bytes = pool.layout.tile_bytes();
  each_tile(pool, slot, [&](const std::byte* tile) {
    std::memcpy(to, tile, bytes);
    to += bytes;
  });
}

void OffloadBuffer::get(std::size_t group, const KvView& pool, std::int32_t slot, std::int32_t place) const {
  const std::byte* from = buffers_[group].data() + page_bytes_[group] * static_cast<std::size_t>(place);
  const std::size_t bytes = pool.layout.tile_bytes();
  each_tile(pool, slot, [&](std::byte* tile) {
    std::memcpy(tile, from, bytes);
    from += bytes;
  });
}

}  // namespace shoal::kv
