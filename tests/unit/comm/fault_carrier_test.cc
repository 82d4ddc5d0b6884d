#include "comm/fault_carrier.h"

#include <gtest/gtest.h>

#include <thread>

#include "comm/fake_carrier.h"

namespace shoal::comm {
namespace {

// Rank 0 with a fault at its second message, rank 1 without.
class Pair {
 public:
  explicit Pair(FaultAction action) : ranks_(FakeNetwork::carriers(2)) {
    ranks_[0] = std::make_unique<FaultCarrier>(
        std::move(ranks_[0]),
        std::make_shared<FaultPlan>(std::vector<Fault>{
            {.nth = 2, .rank = 0, .action = action, .delay = std::chrono::milliseconds(1)}}));
  }
  Status send(int value) {
    const Outgoing out{1, std::as_bytes(std::span(&value, 1))};
    return ranks_[0]->transfer(std::span(&out, 1), {}, now() + std::chrono::seconds(20));
  }
  Status receive(int& value, std::chrono::milliseconds time = std::chrono::seconds(20)) {
    const Incoming in{0, std::as_writable_bytes(std::span(&value, 1))};
    return ranks_[1]->transfer({}, std::span(&in, 1), now() + time);
  }
  // What rank 1 gets after 1, 2, 3 were sent.
  std::vector<int> received() {
    std::vector<int> values;
    for (int value = 1; value <= 3; ++value) EXPECT_TRUE(send(value).ok());
    int value = 0;
    while (receive(value, std::chrono::milliseconds(20)).ok()) values.push_back(value);
    return values;
  }

 private:
  std::vector<std::unique_ptr<Carrier>> ranks_;
};

TEST(FaultCarrier, DropsTheNthMessage) {
  EXPECT_EQ(Pair(FaultAction::kDrop).received(), (std::vector<int>{1, 3}));
}
TEST(FaultCarrier, SendsTheNthMessageTwice) {
  EXPECT_EQ(Pair(FaultAction::kDuplicate).received(), (std::vector<int>{1, 2, 2, 3}));
}
TEST(FaultCarrier, DelaysTheNthMessageAndLosesNothing) {
  EXPECT_EQ(Pair(FaultAction::kDelay).received(), (std::vector<int>{1, 2, 3}));
}
TEST(FaultCarrier, TurnsABitOfTheNthMessage) {
  const std::vector<int> values = Pair(FaultAction::kCorrupt).received();
  ASSERT_EQ(values.size(), 3U);
  EXPECT_EQ(values[0], 1);
  EXPECT_NE(values[1], 2);
  EXPECT_EQ(values[2], 3);
}

TEST(FaultCarrier, ACutShortMessageIsFoundOut) {
  Pair pair(FaultAction::kTruncate);
  int value = 0;
  ASSERT_TRUE(pair.send(1).ok());
  ASSERT_TRUE(pair.send(2).ok());
  ASSERT_TRUE(pair.receive(value).ok());
  EXPECT_EQ(pair.receive(value).code(), ErrorCode::kCorrupt);
}

TEST(FaultCarrier, ARankCutOffFailsFromThenOn) {
  Pair pair(FaultAction::kCut);
  ASSERT_TRUE(pair.send(1).ok());
  EXPECT_EQ(pair.send(2).code(), ErrorCode::kUnavailable);
  EXPECT_EQ(pair.send(3).code(), ErrorCode::kUnavailable);
}

TEST(FaultPlan, AFaultIsDueOnceAtItsPointAndRank) {
  FaultPlan plan({{.at = FaultPoint::kPlan, .nth = 2, .rank = 1, .action = FaultAction::kKill}});
  EXPECT_FALSE(plan.reach(FaultPoint::kPlan, 1).has_value());
  EXPECT_FALSE(plan.reach(FaultPoint::kReady, 1).has_value());
  const auto due = plan.reach(FaultPoint::kPlan, 1);
  ASSERT_TRUE(due.has_value());
  EXPECT_EQ(due->action, FaultAction::kKill);
  EXPECT_FALSE(plan.reach(FaultPoint::kPlan, 1).has_value());
  FaultPlan others({{.nth = 1, .rank = 2}});
  EXPECT_FALSE(others.reach(FaultPoint::kTransfer, 1).has_value());
}

TEST(FaultCarrier, KnowsItsActionsByName) {
  EXPECT_EQ(fault_point_from_name("ready"), FaultPoint::kReady);
  EXPECT_FALSE(fault_point_from_name("never").has_value());
  EXPECT_TRUE(harms_any_point(FaultAction::kStop));
  EXPECT_FALSE(harms_any_point(FaultAction::kDrop));
  EXPECT_EQ(fault_action_from_name("truncate"), FaultAction::kTruncate);
  EXPECT_FALSE(fault_action_from_name("explode").has_value());
}

}  // namespace
}  // namespace shoal::comm
