#include "handover/room_table.h"

#include <gtest/gtest.h>

#include <random>

namespace shoal::handover {
namespace {

using std::chrono::seconds;
const TimePoint kStart = TimePoint{} + std::chrono::hours(1);

TEST(RoomTable, ARoomGoesForwardOnly) {
  RoomTable rooms;
  ASSERT_TRUE(rooms.open(7, kStart).ok());
  EXPECT_EQ(rooms.state(7), RoomState::kBootstrapping);
  EXPECT_TRUE(rooms.move_to(7, RoomState::kTransferring, kStart));
  EXPECT_FALSE(rooms.move_to(7, RoomState::kWaiting, kStart));
  EXPECT_FALSE(rooms.move_to(7, RoomState::kTransferring, kStart));
  EXPECT_EQ(rooms.count(RoomState::kTransferring), 1U);
  EXPECT_TRUE(rooms.move_to(7, RoomState::kSuccess, kStart));
  EXPECT_EQ(rooms.open_rooms(), 0U);
  EXPECT_FALSE(rooms.move_to(7, RoomState::kFailed, kStart));
  EXPECT_EQ(rooms.ended(RoomState::kSuccess), 1U);
  EXPECT_EQ(rooms.ended(RoomState::kFailed), 0U);
}

TEST(RoomTable, FailedIsForGood) {
  RoomTable rooms;
  ASSERT_TRUE(rooms.open(7, kStart).ok());
  EXPECT_TRUE(rooms.move_to(7, RoomState::kFailed, kStart));
  for (const RoomState state : {RoomState::kWaiting, RoomState::kTransferring, RoomState::kSuccess})
    EXPECT_FALSE(rooms.move_to(7, state, kStart));
  EXPECT_TRUE(rooms.over(7));
}

TEST(RoomTable, ANumberIsUsedOnce) {
  RoomTable rooms;
  ASSERT_TRUE(rooms.open(7, kStart).ok());
  EXPECT_NE(rooms.open(7, kStart).message().find("in use"), std::string::npos);
  rooms.move_to(7, RoomState::kSuccess, kStart);
  EXPECT_NE(rooms.open(7, kStart + RoomTable::kRemembered - seconds(1)).message().find("is over"),
            std::string::npos);
  EXPECT_TRUE(rooms.open(7, kStart + RoomTable::kRemembered).ok());
  EXPECT_FALSE(rooms.open(RoomId{1} << 63, kStart).ok());
}

TEST(RoomTable, OneThatIsBuriedIsRefusedWhenItComes) {
  RoomTable rooms;
  rooms.bury(7, kStart);
  EXPECT_TRUE(rooms.over(7));
  EXPECT_NE(rooms.open(7, kStart + seconds(1)).message().find("is over"), std::string::npos);
  EXPECT_EQ(rooms.ended(RoomState::kFailed), 0U);
  // An open one lives, one that is over is over as long as before.
  ASSERT_TRUE(rooms.open(8, kStart).ok());
  rooms.bury(8, kStart);
  EXPECT_EQ(rooms.state(8), RoomState::kBootstrapping);
  rooms.bury(7, kStart + seconds(10));
  EXPECT_TRUE(rooms.open(7, kStart + RoomTable::kRemembered).ok());
}

TEST(RoomTable, IsRememberedForLongerThanItCouldWait) {
  seconds all{0};
  for (const seconds longest : RoomTable::kLongest) all += longest;
  EXPECT_GT(RoomTable::kRemembered, all);
}

TEST(RoomTable, EachStateHasItsDeadline) {
  RoomTable rooms;
  TimePoint time = kStart;
  for (const RoomId room : {1, 2, 3, 4}) ASSERT_TRUE(rooms.open(room, time).ok());
  rooms.move_to(2, RoomState::kWaiting, time + seconds(1));
  rooms.move_to(3, RoomState::kTransferring, time);
  rooms.hasten(4, time + seconds(30));
  rooms.hasten(1, time + seconds(5000));
  EXPECT_EQ(*rooms.next_deadline(), kStart + seconds(30));
  time += seconds(30);
  EXPECT_EQ(rooms.expire(time), (std::vector<std::pair<RoomId, RoomState>>{{4, RoomState::kBootstrapping}}));
  time += seconds(29);
  EXPECT_TRUE(rooms.expire(time).empty());
  rooms.touch(3, time);
  rooms.touch(1, time);
  time = kStart + seconds(358);
  EXPECT_TRUE(rooms.expire(time).empty());
  time += seconds(1);
  EXPECT_EQ(rooms.expire(time), (std::vector<std::pair<RoomId, RoomState>>{{3, RoomState::kTransferring}}));
  // The others may stand in a queue.
  time = kStart + seconds(1799);
  EXPECT_TRUE(rooms.expire(time).empty());
  time += seconds(1);
  EXPECT_EQ(rooms.expire(time), (std::vector<std::pair<RoomId, RoomState>>{{1, RoomState::kBootstrapping}}));
  time += seconds(1);
  EXPECT_EQ(rooms.expire(time), (std::vector<std::pair<RoomId, RoomState>>{{2, RoomState::kWaiting}}));
  EXPECT_FALSE(rooms.next_deadline());
  EXPECT_EQ(rooms.ended(RoomState::kFailed), 4U);
}

TEST(RoomTable, ALimitHoldsInEveryLaterState) {
  RoomTable rooms;
  ASSERT_TRUE(rooms.open(1, kStart).ok());
  rooms.limit(1, seconds(60), kStart + seconds(10));
  EXPECT_EQ(*rooms.next_deadline(), kStart + seconds(70));
  rooms.move_to(1, RoomState::kTransferring, kStart + seconds(20));
  EXPECT_EQ(*rooms.next_deadline(), kStart + seconds(80));
  // Since the last byte.
  rooms.touch(1, kStart + seconds(30));
  EXPECT_TRUE(rooms.expire(kStart + seconds(89)).empty());
  EXPECT_EQ(rooms.expire(kStart + seconds(90)).size(), 1U);
}

TEST(RoomTable, WhatItRemembersIsBounded) {
  RoomTable rooms;
  for (RoomId room = 0; room < RoomTable::kMostRemembered + 10; ++room) {
    ASSERT_TRUE(rooms.open(room, kStart).ok());
    rooms.move_to(room, RoomState::kFailed, kStart);
  }
  EXPECT_FALSE(rooms.over(9));
  EXPECT_TRUE(rooms.over(10));
}

TEST(RoomTable, CountsAddUpWhateverHappens) {
  RoomTable rooms;
  std::mt19937 random(5);
  TimePoint time = kStart;
  for (int i = 0; i < 20000; ++i) {
    time += std::chrono::milliseconds(random() % 2000);
    const RoomId room = random() % 50;
    if (random() % 3 == 0) {
      const bool may = !rooms.state(room) && !rooms.over(room);
      const bool opened = rooms.open(room, time).ok();
      // open() forgets first what is old enough.
      EXPECT_TRUE(opened || !may);
    } else if (random() % 5 == 0) {
      for (const auto& [late, state] : rooms.expire(time)) EXPECT_TRUE(rooms.over(late));
    } else {
      const auto before = rooms.state(room);
      const auto to = static_cast<RoomState>(1 + random() % 4);
      EXPECT_EQ(rooms.move_to(room, to, time), before && to > *before);
    }
    ASSERT_EQ(rooms.count(RoomState::kBootstrapping) + rooms.count(RoomState::kWaiting) +
                  rooms.count(RoomState::kTransferring),
              rooms.open_rooms());
  }
}

}  // namespace
}  // namespace shoal::handover
