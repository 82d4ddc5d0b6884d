#include "core/expected.h"

#include <gtest/gtest.h>

#include <memory>

namespace shoal {
namespace {

Expected<std::unique_ptr<int>> half_of(int value) {
  if (value % 2 != 0) return Status(ErrorCode::kInvalidArgument, "the value is odd", "value");
  return std::make_unique<int>(value / 2);
}

Expected<int> quarter_of(int value) {
  SHOAL_ASSIGN(half, half_of(value));
  SHOAL_ASSIGN(quarter, half_of(*half));
  return *quarter;
}

TEST(Expected, CarriesMoveOnlyValues) {
  auto half = half_of(8);
  ASSERT_TRUE(half.ok());
  const std::unique_ptr<int> taken = *std::move(half);
  EXPECT_EQ(*taken, 4);
}

TEST(Expected, AssignPassesTheFirstErrorOn) {
  EXPECT_EQ(*quarter_of(12), 3);
  auto failed = quarter_of(6);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(failed.error().message(), "the value is odd");
  EXPECT_EQ(failed.error().field(), "value");
}

TEST(Status, IsOkUntilItFails) {
  EXPECT_TRUE(Status().ok());
  EXPECT_FALSE(Status(ErrorCode::kIo, "the disk is gone").ok());
  EXPECT_TRUE(Expected<int>(3).status().ok());
}

}  // namespace
}  // namespace shoal
