// Pages of sequences that gave way: what is kept where, and that bytes come back as they went.

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kv/kv_store.h"
#include "kv/offload_buffer.h"
#include "kv/offload_table.h"

namespace shoal::kv {
namespace {

TEST(OffloadTable, APageIsKeptOnItsCoordinateInItsGroup) {
  OffloadTable table(4, 2);
  StowedPages one, other;
  EXPECT_TRUE(table.take(1, 5, {3, 70, 9}, one));
  EXPECT_TRUE(table.take(1, 6, {3, 71, 9}, one));
  EXPECT_EQ(one.pages[0].place.pool, 3);
  EXPECT_EQ(one.pages[1].logical, 6);
  EXPECT_NE(one.pages[0].place.slot, one.pages[1].place.slot);
  EXPECT_EQ(table.kept(3), 2);
  EXPECT_FALSE(table.take(1, 0, {3, 1, 1}, other)) << "both places of this pool are taken";
  EXPECT_TRUE(table.take(0, 0, {2, 1, 1}, other));
  table.release(one);
  EXPECT_EQ(table.kept(3), 0);
  EXPECT_EQ(table.kept(2), 1);
}

TEST(OffloadTable, RoomIsCountedByPool) {
  OffloadTable table(2, 3);
  StowedPages stowed;
  ASSERT_TRUE(table.take(0, 0, {0, 0, 1}, stowed));
  EXPECT_TRUE(table.has_room(std::vector<std::int32_t>{2, 3}));
  EXPECT_FALSE(table.has_room(std::vector<std::int32_t>{3, 0}));
  table.clear();
  EXPECT_TRUE(table.has_room(std::vector<std::int32_t>{3, 3}));
  EXPECT_FALSE(OffloadTable(2, 0).has_room(std::vector<std::int32_t>{1, 0}));
}

TEST(OffloadBuffer, BytesComeBackToAnySlotAsTheyWent) {
  for (const KvDType dtype : {KvDType::kBf16, KvDType::kF32}) {
    std::vector<KvLayout> layouts = {{2, 3, 8, 5, dtype}, {1, 1, 4, 5, dtype}};
    auto store = KvStore::make(layouts);
    ASSERT_TRUE(store.ok());
    auto buffer = OffloadBuffer::make(layouts, 3);
    ASSERT_TRUE(buffer.ok());
    for (std::size_t g = 0; g < layouts.size(); ++g) {
      const KvView& pool = store->views()[g];
      ASSERT_EQ(buffer->page_bytes(g), layouts[g].page_bytes());
      const std::size_t bytes = layouts[g].pool_bytes();
      for (std::size_t i = 0; i < bytes; ++i) pool.base[i] = static_cast<std::byte>(i * 31 + i / 251);
      const std::vector<std::byte> before(pool.base, pool.base + bytes);
      buffer->put(g, pool, 1, 2);
      buffer->put(g, pool, 4, 0);
      for (std::size_t i = 0; i < bytes; ++i) pool.base[i] = std::byte{0xee};
      buffer->get(g, pool, 3, 2);
      buffer->get(g, pool, 0, 0);
      // What lay in slot 1 is in 3, what lay in 4 is in 0, and nothing else has changed.
      const std::int32_t from[] = {4, -1, -1, 1, -1};
      const std::size_t tile = layouts[g].tile_bytes();
      for (std::int32_t layer = 0; layer < layouts[g].layers; ++layer) {
        for (std::int32_t head = 0; head < layouts[g].kv_heads; ++head) {
          for (std::int32_t slot = 0; slot < layouts[g].slots; ++slot) {
            const std::int32_t source = from[slot];
            for (const bool keys : {true, false}) {
              const auto at = [&](std::int32_t s) {
                return keys ? layouts[g].k_tile(layer, head, s) : layouts[g].v_tile(layer, head, s);
              };
              const std::vector<std::byte> untouched(tile, std::byte{0xee});
              const std::byte* want = source < 0 ? untouched.data() : before.data() + at(source);
              EXPECT_EQ(std::memcmp(pool.base + at(slot), want, tile), 0) << slot;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace shoal::kv
