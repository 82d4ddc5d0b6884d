// The size that the traffic formulas give a step plan is the size of what is sent.

#include <gtest/gtest.h>

#include "layout/traffic.h"
#include "wire/step_plan_codec.h"

namespace shoal::wire {
namespace {

TEST(PlanBytes, AreThoseOfTheEncoding) {
  StepPlan plan;
  EXPECT_EQ(encoded_bytes(plan), encode(plan).size());
  plan.closes = {SequenceSlot(3), SequenceSlot(4)};
  SequenceOpen open;
  open.sampling.logit_bias = {{7, 1.5F}};
  open.sampling.stop_ids = {1, 2, 3};
  open.prompt = {5, 6, 7, 8};
  open.output = {9};
  plan.opens = {open, SequenceOpen{}};
  plan.copies.resize(2);
  plan.grants.resize(3);
  plan.releases.resize(2);
  plan.sub_batches.resize(2);
  plan.sub_batches[0].items = {{SequenceSlot(1), 0, {1, 2, 3}, true}, {SequenceSlot(2), 5, {}, true}};
  EXPECT_EQ(encoded_bytes(plan), encode(plan).size());
}

TEST(PlanBytes, AResultsAreThose) {
  StepResult result;
  result.sampled.resize(5);
  result.stage_seconds = {0.5, 0.25};
  const Layout staged = *Layout::make({.pp = 2});
  EXPECT_EQ(result_traffic(staged, {9, 5, 5}).payload, encode(result).size());
  // The head's own are not sent.
  EXPECT_EQ(result_traffic(Layout::single(), {9, 5, 5}), Traffic());
}

}  // namespace
}  // namespace shoal::wire
