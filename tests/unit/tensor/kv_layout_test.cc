#include "tensor/kv_layout.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace shoal {
namespace {

KvLayout sample(KvDType dtype) {
  return {.layers = 3, .kv_heads = 2, .head_dim = 6, .slots = 5, .dtype = dtype};
}

TEST(KvLayout, TilesCoverThePoolWithoutOverlap) {
  for (const KvDType dtype : {KvDType::kBf16, KvDType::kF32}) {
    const KvLayout layout = sample(dtype);
    std::set<std::size_t> starts;
    for (int layer = 0; layer < layout.layers; ++layer) {
      for (int head = 0; head < layout.kv_heads; ++head) {
        for (int slot = 0; slot < layout.slots; ++slot) {
          starts.insert(layout.k_tile(layer, head, slot));
          starts.insert(layout.v_tile(layer, head, slot));
        }
      }
    }
    EXPECT_EQ(starts.size(), 2U * 3 * 2 * 5);
    EXPECT_EQ(*starts.begin(), 0U);
    // As many tiles as fit, each a tile from the next: nothing overlaps and nothing is left.
    std::size_t want = 0;
    for (const std::size_t start : starts) {
      EXPECT_EQ(start, want);
      EXPECT_EQ(start % 64, 0U);
      want += layout.tile_bytes();
    }
    EXPECT_EQ(want, layout.pool_bytes());
  }
}

TEST(KvLayout, ElementsFillATileExactlyOnce) {
  const KvLayout layout = sample(KvDType::kBf16);
  const std::size_t elements = layout.tile_bytes() / layout.element_bytes();
  std::vector<int> k(elements, 0);
  std::vector<int> v(elements, 0);
  for (int dim = 0; dim < layout.head_dim; ++dim) {
    for (int token = 0; token < kPageTokens; ++token) {
      ++k.at(layout.k_element(dim, token));
      ++v.at(layout.v_element(dim, token));
    }
  }
  EXPECT_EQ(k, std::vector<int>(elements, 1));
  EXPECT_EQ(v, std::vector<int>(elements, 1));
}

TEST(KvLayout, KHoldsPairsOfDimensionsAndVPairsOfTokens) {
  const KvLayout layout = sample(KvDType::kBf16);
  EXPECT_EQ(layout.k_element(1, 0), layout.k_element(0, 0) + 1);
  EXPECT_EQ(layout.k_element(0, 1), 2U);
  EXPECT_EQ(layout.v_element(0, 1), layout.v_element(0, 0) + 1);
  EXPECT_EQ(layout.v_element(1, 0), 2U);
}

TEST(KvLayout, OneHeadsPagesLieInOneRun) {
  const KvLayout layout = sample(KvDType::kBf16);
  EXPECT_EQ(layout.k_tile(1, 1, 3), layout.k_tile(1, 1, 2) + layout.tile_bytes());
  EXPECT_EQ(layout.v_tile(1, 1, 0), layout.k_tile(1, 1, 0) + layout.slab_bytes());
}

TEST(KvLayout, ViewsPointAtTheSameTiles) {
  const KvLayout layout = sample(KvDType::kF32);
  std::vector<std::byte> bytes(layout.pool_bytes());
  const KvView view{bytes.data(), layout};
  EXPECT_EQ(reinterpret_cast<std::byte*>(view.k<float>(2, 1, 4)), bytes.data() + layout.k_tile(2, 1, 4));
  EXPECT_EQ(reinterpret_cast<std::byte*>(view.v<float>(2, 1, 4)), bytes.data() + layout.v_tile(2, 1, 4));
}

TEST(KvLayout, IdNamesWhatPeersMustShare) {
  const KvLayout layout = sample(KvDType::kBf16);
  EXPECT_EQ(layout.id(), "v1/bf16/h2x6");
  KvLayout more_slots = layout;
  more_slots.slots = 99;
  EXPECT_EQ(more_slots.id(), layout.id());
  EXPECT_NE(sample(KvDType::kF32).id(), layout.id());
}

}  // namespace
}  // namespace shoal
