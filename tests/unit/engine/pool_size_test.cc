#include "engine/pool_size.h"

#include <gtest/gtest.h>

namespace shoal::engine {
namespace {

constexpr std::size_t kMiB = 1 << 20;

PoolRequest base() {
  PoolRequest request;
  request.page_bytes = kMiB;
  request.context_pages = 100;
  request.max_sequences = 64;
  request.available = 1000 * kMiB;
  return request;
}

TEST(PoolSize, PagesAndBytesAreTakenAsAsked) {
  PoolRequest request = base();
  request.kv_pages = 7;
  EXPECT_EQ(*pool_pages(request), 7);
  request.kv_pages = 0;
  request.kv_bytes = static_cast<std::int64_t>(10 * kMiB + 5);
  EXPECT_EQ(*pool_pages(request), 10);
}

TEST(PoolSize, DefaultIsHalfOfWhatIsFree) { EXPECT_EQ(*pool_pages(base()), 500); }

TEST(PoolSize, DefaultHoldsAtLeastOneContextWhereMemoryAllows) {
  PoolRequest request = base();
  request.available = 150 * kMiB;
  EXPECT_EQ(*pool_pages(request), 100);
  request.available = 50 * kMiB;
  EXPECT_EQ(*pool_pages(request), 45);
}

TEST(PoolSize, DefaultIsNoMoreThanAllSequencesCanUse) {
  PoolRequest request = base();
  request.max_sequences = 2;
  EXPECT_EQ(*pool_pages(request), 200);
}

TEST(PoolSize, RefusesWhatCannotBe) {
  PoolRequest request = base();
  request.available = kMiB / 2;
  EXPECT_EQ(pool_pages(request).error().code(), ErrorCode::kExhausted);
  request = base();
  request.kv_pages = -1;
  EXPECT_EQ(pool_pages(request).error().field(), "--kv-pages");
  request.kv_pages = std::int64_t{1} << 40;
  EXPECT_EQ(pool_pages(request).error().field(), "--kv-pages");
  request = base();
  request.kv_bytes = 5;
  EXPECT_EQ(pool_pages(request).error().field(), "--kv-bytes");
  request.kv_bytes = -5;
  EXPECT_EQ(pool_pages(request).error().field(), "--kv-bytes");
}

TEST(OffloadPlaces, AreAQuarterOfThePoolUnlessAskedFor) {
  OffloadRequest request{std::nullopt, 1000, kMiB};
  EXPECT_EQ(*offload_places(request), 250);
  request.bytes = 0;
  EXPECT_EQ(*offload_places(request), 0);
  request.bytes = static_cast<std::int64_t>(7 * kMiB + 5);
  EXPECT_EQ(*offload_places(request), 7);
}

TEST(OffloadPlaces, LessThanAPageIsRefused) {
  for (const std::int64_t bytes :
       {std::int64_t{1}, static_cast<std::int64_t>(kMiB - 1), std::int64_t{-1}, std::int64_t{1} << 50}) {
    const auto places = offload_places({bytes, 1000, kMiB});
    ASSERT_FALSE(places.ok()) << bytes;
    EXPECT_EQ(places.error().field(), "--offload-bytes");
  }
}

}  // namespace
}  // namespace shoal::engine
