#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace shoal {
namespace {

TEST(DType, NamesAndFileIdsRoundTrip) {
  int known = 0;
  for (std::uint32_t id = 0; id < 256; ++id) {
    const auto type = dtype_from_gguf(id);
    if (!type) continue;
    ++known;
    EXPECT_EQ(static_cast<std::uint32_t>(*type), id);
    EXPECT_EQ(dtype_from_name(dtype_name(*type)), type);
    EXPECT_GT(block_bytes(*type), 0);
  }
  EXPECT_EQ(known, 17);
  EXPECT_FALSE(dtype_from_gguf(4).has_value());  // withdrawn types stay unknown
  EXPECT_FALSE(dtype_from_gguf(UINT32_MAX).has_value());
  EXPECT_FALSE(dtype_from_name("q9_9").has_value());
}

TEST(DType, RowBytesAreThoseOfTheFormat) {
  EXPECT_EQ(row_bytes(DType::kF32, 7), 28);
  EXPECT_EQ(row_bytes(DType::kBF16, 7), 14);
  EXPECT_EQ(row_bytes(DType::kQ4_0, 64), 2 * 18);
  EXPECT_EQ(row_bytes(DType::kQ4_1, 64), 2 * 20);
  EXPECT_EQ(row_bytes(DType::kQ5_0, 32), 22);
  EXPECT_EQ(row_bytes(DType::kQ5_1, 32), 24);
  EXPECT_EQ(row_bytes(DType::kQ8_0, 32), 34);
  EXPECT_EQ(row_bytes(DType::kQ4_K, 256), 144);
  EXPECT_EQ(row_bytes(DType::kQ5_K, 256), 176);
  EXPECT_EQ(row_bytes(DType::kQ6_K, 512), 420);
}

TEST(DType, OnlyBlockTypesAreQuantised) {
  EXPECT_FALSE(is_quantised(DType::kF32));
  EXPECT_FALSE(is_quantised(DType::kF16));
  EXPECT_FALSE(is_quantised(DType::kBF16));
  EXPECT_TRUE(is_quantised(DType::kQ8_0));
  EXPECT_TRUE(is_quantised(DType::kQ6_K));
}

}  // namespace
}  // namespace shoal
