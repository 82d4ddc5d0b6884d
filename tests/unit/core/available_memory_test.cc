#include "core/available_memory.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

TEST(AvailableMemory, SeesSomeMemoryHere) {
  EXPECT_GT(available_memory(), std::size_t{1} << 20);
  EXPECT_LT(available_memory(), std::size_t{1} << 50);
}

}  // namespace
}  // namespace shoal
