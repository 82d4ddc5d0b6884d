#include "engine/stats.h"

#include <gtest/gtest.h>

#include <numeric>

namespace shoal::engine {
namespace {

TEST(Histogram, CountsEachValueInTheFirstBucketThatHoldsIt) {
  Histogram histogram;
  histogram.add(0);
  histogram.add(0.001);
  histogram.add(0.0011);
  histogram.add(1e9);
  EXPECT_EQ(histogram.buckets()[0], 2U);
  EXPECT_EQ(histogram.buckets()[1], 1U);
  EXPECT_EQ(histogram.buckets().back(), 1U);
  EXPECT_EQ(histogram.count(), 4U);
  EXPECT_DOUBLE_EQ(histogram.sum(), 0.0021 + 1e9);
}

TEST(BusyMeter, IsTheShareOfTheLastTenSeconds) {
  BusyMeter meter;
  TimePoint time = TimePoint{} + std::chrono::hours(5);
  EXPECT_EQ(meter.ratio(time), 0);
  for (int i = 0; i < 10; ++i) meter.add(time + std::chrono::seconds(i), 0.5);
  EXPECT_NEAR(meter.ratio(time + std::chrono::seconds(9)), 0.5, 1e-9);
  EXPECT_NEAR(meter.ratio(time + std::chrono::seconds(14)), 0.25, 1e-9);
  EXPECT_EQ(meter.ratio(time + std::chrono::seconds(30)), 0);
}

TEST(BusyMeter, SpreadsALongPassOverTheSecondsItTook) {
  BusyMeter meter;
  const TimePoint time = TimePoint{} + std::chrono::hours(5);
  meter.add(time, 3);
  EXPECT_NEAR(meter.ratio(time), 0.3, 1e-9);
  meter.add(time, 100);
  EXPECT_LE(meter.ratio(time), 1);
}

}  // namespace
}  // namespace shoal::engine
