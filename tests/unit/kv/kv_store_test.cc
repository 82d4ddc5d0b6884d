#include "kv/kv_store.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <vector>

namespace shoal::kv {
namespace {

constexpr std::size_t kSmallPage = 4096;

// Bytes from there on, in whole pages, that have memory.
std::size_t resident(const std::byte* from, std::size_t bytes) {
  std::vector<unsigned char> pages(bytes / kSmallPage);
  auto* begin = const_cast<std::byte*>(from);
  EXPECT_EQ(::mincore(begin, bytes, pages.data()), 0);
  std::size_t n = 0;
  for (const unsigned char page : pages) n += (page & 1U) * kSmallPage;
  return n;
}

// Tiles of 4 KiB: no slot begins inside a page of the system.
KvLayout layout_of(std::int32_t slots) { return {2, 3, 64, slots, KvDType::kBf16}; }

TEST(KvStore, TheFirstSlotsOfEveryHeadHaveMemoryBeforeAnybodyWritesThem) {
  // 16 MiB a slab: what is touched of one is far from the end of it.
  const KvLayout layout = layout_of(4096);
  auto store = KvStore::make(std::span(&layout, 1));
  ASSERT_TRUE(store.ok());
  const KvView& view = store->views()[0];
  EXPECT_EQ(resident(view.base, layout.pool_bytes()), 0U);

  ThreadPool pool({.threads = 2});
  store->touch_first(pool);
  const std::size_t touched = KvStore::kTouchedSlots * layout.tile_bytes();
  for (std::int32_t layer = 0; layer < layout.layers; ++layer) {
    for (std::int32_t head = 0; head < layout.kv_heads; ++head) {
      for (const std::byte* slab : {view.k<std::byte>(layer, head, 0), view.v<std::byte>(layer, head, 0)})
        EXPECT_EQ(resident(slab, touched), touched);
    }
  }
  // In huge pages somewhat more, but not the pool.
  EXPECT_LE(resident(view.base, layout.pool_bytes()), layout.pool_bytes() / 4);
  for (std::size_t at = 0; at < touched; ++at) ASSERT_EQ(view.base[at], std::byte{0});
}

TEST(KvStore, APoolOfFewSlotsIsTouchedAsAWhole) {
  const KvLayout layout = layout_of(5);
  auto store = KvStore::make(std::span(&layout, 1));
  ASSERT_TRUE(store.ok());
  ThreadPool pool({.threads = 1});
  store->touch_first(pool);
  EXPECT_EQ(resident(store->views()[0].base, layout.pool_bytes()), layout.pool_bytes());
}

}  // namespace
}  // namespace shoal::kv
