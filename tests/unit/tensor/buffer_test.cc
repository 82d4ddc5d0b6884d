#include "tensor/buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

namespace shoal {
namespace {

TEST(Buffer, IsAlignedAndZero) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{4097}, std::size_t{5} << 20}) {
    auto buffer = Buffer::allocate(size, "test");
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(buffer->size(), size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % 64, 0U);
    if (size >= std::size_t{2} << 20) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % (std::size_t{2} << 20), 0U);
    }
    EXPECT_TRUE(
        std::all_of(buffer->data(), buffer->data() + size, [](std::byte b) { return b == std::byte{0}; }));
  }
}

TEST(Buffer, NothingIsAValidSize) {
  auto buffer = Buffer::allocate(0, "test");
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->size(), 0U);
}

TEST(Buffer, MovesItsBytes) {
  auto first = Buffer::allocate(100, "test");
  ASSERT_TRUE(first.ok());
  first->data()[7] = std::byte{42};
  const std::byte* where = first->data();
  Buffer second = std::move(*first);
  EXPECT_EQ(second.data(), where);
  EXPECT_EQ(first->data(), nullptr);
  Buffer third;
  third = std::move(second);
  EXPECT_EQ(third.data()[7], std::byte{42});
}

TEST(Buffer, AnAbsurdSizeIsAnErrorThatNamesItsUse) {
  const auto buffer = Buffer::allocate(std::numeric_limits<std::size_t>::max() / 2, "KV pool");
  ASSERT_FALSE(buffer.ok());
  EXPECT_EQ(buffer.error().code(), ErrorCode::kExhausted);
  EXPECT_NE(buffer.error().message().find("KV pool"), std::string::npos);
}

}  // namespace
}  // namespace shoal
