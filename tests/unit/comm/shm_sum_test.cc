#include "comm/shm_sum.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "carrier_rig.h"

namespace shoal::comm {
namespace {

TimePoint soon() { return now() + std::chrono::seconds(20); }

ShmLayout layout_of(std::int32_t ranks, std::int32_t lanes) {
  ShmLayout layout;
  layout.ranks = ranks;
  layout.lanes = lanes;
  layout.piece_bytes = 4096;
  layout.ring_bytes = 4096;
  layout.groups = {whole_group(ranks, 0).ranks};
  return layout;
}

TEST(ShmSegment, AnAbortDoesNotDependOnAProcessThatDiedOverAnother) {
  const auto segment = *ShmSegment::create(layout_of(2, 1));
  segment->header().claimed = 1;  // and nothing more
  segment->abort("too late");
  EXPECT_TRUE(segment->aborted());
  EXPECT_EQ(segment->abort_reason(), "another rank gave up");
}

TEST(ShmSegment, WhatAProcessWroteOfItsReasonBeforeItDiedStays) {
  const auto segment = *ShmSegment::create(layout_of(2, 1));
  segment->header().claimed = 1;
  segment->header().reason[0] = 'a';
  EXPECT_EQ(segment->abort_reason(), "");
  segment->abort("too late");
  EXPECT_EQ(segment->abort_reason(), "a");
}

TEST(ShmSegment, KeepsTheFirstReasonAndCutsALongOne) {
  const auto segment = *ShmSegment::create(layout_of(2, 1));
  segment->abort(std::string(1000, 'x'));
  segment->abort("second");
  EXPECT_EQ(segment->abort_reason(), std::string(255, 'x'));
}

// One rank alone waits for nobody, so many rounds take little time.
TEST(ShmSum, IdleLanesLagNoMoreThanTheyMay) {
  const auto segment = *ShmSegment::create(layout_of(1, 3));
  Status failed;
  ShmSum sum(segment, 0, 0, Patience{}, nullptr, failed);
  const std::int32_t parts[] = {1};
  float value = 1;
  const float* mine[] = {&value};
  const auto round_of = [&](std::size_t lane) {
    return segment->at<RoundLine>(segment->layout().round_line(0, 0, lane))->round.load();
  };
  for (std::uint32_t round = 1; round <= 2 * ShmSum::kMostLag; ++round) {
    ASSERT_TRUE(sum.sum(parts, mine, 1, &value, soon()).ok());
    ASSERT_EQ(round_of(0), round);
    for (const std::size_t lane : {1, 2}) ASSERT_LT(round - round_of(lane), ShmSum::kMostLag);
  }
  EXPECT_EQ(value, 1);
}

TEST(ShmSum, MorePartsThanAPieceHoldsAreRefusedOnEveryRank) {
  RigOptions options;
  options.carrier = "shm";
  options.piece_bytes = 4096;  // 1,024 values: a line of 16 for each of 64 parts
  for (const std::int32_t most : {64, 65}) {
    CarrierRig rig(options);
    rig.run([&](std::int32_t rank, Collectives& group) {
      const std::int32_t counts[] = {1, most};
      std::vector<float> out(100), part(100, 1);
      const std::vector<const float*> mine(static_cast<std::size_t>(counts[rank]), part.data());
      const Status status = group.all_reduce(Purpose::kTp, {counts, mine}, out);
      if (most == 64) {
        EXPECT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(out, std::vector<float>(100, 65));
      } else {
        EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
        EXPECT_EQ(status.message(), "a sum of 65 parts of one rank does not fit into pieces of 4096 bytes");
      }
    });
  }
}

// Messages and sums are one carrier: the first error of either is what both say from then on.
TEST(ShmSum, SharesTheFirstErrorWithMessages) {
  RigOptions options;
  options.carrier = "shm";
  options.timeout = std::chrono::milliseconds(20);
  std::vector<float> values(16, 1);
  const auto bytes = std::as_writable_bytes(std::span(values));
  {
    CarrierRig rig(options);
    Collectives group = rig.collectives(0);
    EXPECT_EQ(group.all_reduce(Purpose::kTp, values).code(), ErrorCode::kDeadline);
    EXPECT_EQ(group.receive(Purpose::kPp, 1, bytes).code(), ErrorCode::kDeadline);
  }
  CarrierRig rig(options);
  Collectives group = rig.collectives(0);
  EXPECT_EQ(group.receive(Purpose::kPp, 1, bytes).code(), ErrorCode::kDeadline);
  EXPECT_EQ(group.all_reduce(Purpose::kTp, values).code(), ErrorCode::kDeadline);
}

}  // namespace
}  // namespace shoal::comm
