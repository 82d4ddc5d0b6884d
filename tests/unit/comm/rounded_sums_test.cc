// Sums whose values travel as bf16: half the bytes, the same bits on every rank, close to the sums of f32.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <random>
#include <vector>

#include "carrier_rig.h"
#include "comm/bf16_parts.h"
#include "layout/traffic.h"

namespace shoal::comm {
namespace {

std::vector<float> values_of(std::int32_t rank, std::size_t n) {
  std::mt19937 random(static_cast<unsigned>(rank * 1000 + static_cast<int>(n)));
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(Bf16Parts, RoundAndAddAsOneValueAtATime) {
  std::vector<float> values = values_of(1, 37);
  values[3] = std::numeric_limits<float>::quiet_NaN();
  values[4] = -std::numeric_limits<float>::infinity();
  values[5] = std::numeric_limits<float>::max();  // rounds to infinity
  values[36] = std::numeric_limits<float>::quiet_NaN();
  std::vector<Bf16> rounded(37), reversed(37);
  round_to_bf16(values.data(), 37, rounded.data());
  for (std::size_t i = 0; i < 37; ++i) ASSERT_EQ(rounded[i], f32_to_bf16(values[i])) << i;
  std::reverse_copy(rounded.begin(), rounded.end(), reversed.begin());
  std::vector<float> wide(37), sums(37);
  widen_bf16(rounded.data(), 37, wide.data());
  const Bf16* parts[] = {rounded.data(), reversed.data(), rounded.data()};
  add_bf16_parts(parts, 37, sums.data());
  for (std::size_t i = 0; i < 37; ++i) {
    const float expected = bf16_to_f32(rounded[i]) + bf16_to_f32(reversed[i]) + bf16_to_f32(rounded[i]);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(sums[i])) << i;
      continue;
    }
    EXPECT_EQ(wide[i], bf16_to_f32(rounded[i])) << i;
    EXPECT_EQ(sums[i], expected) << i;
  }
}

class RoundedSums : public testing::TestWithParam<std::pair<const char*, std::int32_t>> {};

TEST_P(RoundedSums, AreAlikeOnAllRanksAndTakeHalfTheBytes) {
  const auto [carrier, ranks] = GetParam();
  RigOptions options;
  options.carrier = carrier;
  options.ranks = ranks;
  options.wire = DType::kBF16;
  for (const std::size_t n : {1, 100, 8192, 16384, 16385, 300'000, 1'200'003}) {
    SCOPED_TRACE(n);
    CarrierRig rig(options);
    std::vector<std::vector<float>> sums(static_cast<std::size_t>(ranks));
    rig.run([&](std::int32_t rank, Collectives& group) {
      std::vector<float> mine = values_of(rank, n);
      ASSERT_TRUE(group.all_reduce(Purpose::kTp, mine).ok());
      sums[static_cast<std::size_t>(rank)] = std::move(mine);
    });
    std::vector<float> exact(n);
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(sums[static_cast<std::size_t>(rank)], sums.front()) << "rank " << rank;
      const std::vector<float> theirs = values_of(rank, n);
      for (std::size_t i = 0; i < n; ++i) exact[i] += theirs[i];
      const Charge charge = rig.ledger(rank).totals(Purpose::kTp);
      EXPECT_EQ(charge.payload, 2 * n);
      EXPECT_EQ(charge.wire[0], SumRoute::wire_bytes(static_cast<std::int64_t>(n), rank, ranks, 2));
    }
    // Half a last place of 8 bits, of each of the values, which are below 6, and of the sum.
    for (std::size_t i = 0; i < n; ++i)
      ASSERT_NEAR(sums.front()[i], exact[i], 6.0F * static_cast<float>(ranks + ranks) / 256) << i;
  }
}

// Where a rank brings several parts, and where values lie in shared memory, nothing is rounded.
TEST(RoundedSums, LeaveSharedMemoryAndPartsAlone) {
  for (const char* carrier : {"shm", "fake"}) {
    RigOptions options;
    options.carrier = carrier;
    options.wire = DType::kBF16;
    CarrierRig rig(options);
    const bool shared = std::string(carrier) == "shm";
    rig.run([&](std::int32_t rank, Collectives& group) {
      std::vector<float> mine = values_of(rank, 1000);
      const std::vector<float> more = values_of(rank + 2, 1000);
      const float* parts[] = {mine.data(), more.data()};
      const std::int32_t counts[] = {shared ? 1 : 2, shared ? 1 : 2};
      const std::span<const float* const> brought(parts, shared ? 1 : 2);
      ASSERT_TRUE(group.all_reduce(Purpose::kTp, {counts, brought}, mine).ok());
      std::vector<float> expected = values_of(0, 1000);
      const auto add = [&](std::int32_t of) {
        const std::vector<float> values = values_of(of, 1000);
        for (std::size_t i = 0; i < 1000; ++i) expected[i] += values[i];
      };
      if (!shared) add(2);
      add(1);
      if (!shared) add(3);
      EXPECT_EQ(mine, expected);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Carriers, RoundedSums,
                         testing::Values(std::pair{"fake", 2}, std::pair{"fake", 3}, std::pair{"fake", 5},
                                         std::pair{"tcp", 2}, std::pair{"tcp", 3}),
                         [](const auto& info) {
                           return std::string(info.param.first) + "_" + std::to_string(info.param.second);
                         });

}  // namespace
}  // namespace shoal::comm
