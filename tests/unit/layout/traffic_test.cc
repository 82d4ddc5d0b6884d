#include "layout/traffic.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

TrafficShape shape_of(Degrees degrees, std::vector<std::int32_t> stage_layers) {
  TrafficShape shape;
  shape.layout = *Layout::make(degrees);
  shape.stage_layers = std::move(stage_layers);
  shape.hidden = 64;
  if (degrees.tp == 2) shape.vocabulary_ends = {300, 500};
  return shape;
}

TEST(Traffic, OneRankMovesNothing) {
  const StepTraffic traffic = step_traffic(shape_of({}, {4}), {10, 1, 1}, 0);
  EXPECT_EQ(traffic.tp, Traffic());
  EXPECT_EQ(traffic.pp, Traffic());
  EXPECT_EQ(traffic.sample, Traffic());
}

TEST(Traffic, TwoSumsALayerAndFewerRowsInTheLast) {
  const auto shape = shape_of({.tp = 2}, {4});
  const StepTraffic first = step_traffic(shape, {10, 1, 1}, 0);
  const std::uint64_t bytes = (3 * 2 * 10 + 2) * 64 * 4;
  EXPECT_EQ(first.tp, (Traffic{8, bytes, bytes}));
  // A chunk that asks for no logits ends before the last layer's sums.
  EXPECT_EQ(step_traffic(shape, {10, 0, 0}, 0).tp.calls, 6U);
  // tp 0 sends the id to tp 1, which sends the best of its part of the vocabulary.
  EXPECT_EQ(first.sample, (Traffic{1, 4, 4}));
  EXPECT_EQ(step_traffic(shape, {10, 3, 1}, 1).sample, (Traffic{1, 8, 8}));
  EXPECT_EQ(first.pp, Traffic());
}

TEST(Traffic, StagesHandOnRowsAndTheLastSendsIdsBack) {
  const auto shape = shape_of({.tp = 2, .pp = 3}, {2, 2, 1});
  const StepRows rows{7, 2, 2};
  for (const std::int32_t rank : {0, 1, 2, 3}) {
    EXPECT_EQ(step_traffic(shape, rows, rank).pp, (Traffic{1, 7 * 64 * 4, 7 * 64 * 4}));
    EXPECT_EQ(step_traffic(shape, rows, rank).tp.payload, 4U * 7 * 64 * 4);
    EXPECT_EQ(step_traffic(shape, rows, rank).sample, Traffic());
  }
  EXPECT_EQ(step_traffic(shape, rows, 0).plan, (Traffic{1, 8, 8}));
  EXPECT_EQ(step_traffic(shape, rows, 2).plan, (Traffic{1, 16, 16}));
  EXPECT_EQ(step_traffic(shape, rows, 3).plan, Traffic());
  EXPECT_EQ(step_traffic(shape, rows, 4).plan, Traffic());
  EXPECT_EQ(step_traffic(shape, rows, 4).pp, Traffic());
  EXPECT_EQ(step_traffic(shape, rows, 4).tp.payload, 2U * 2 * 64 * 4);
  EXPECT_EQ(step_traffic(shape, rows, 4).sample, (Traffic{3, 3 * 2 * 4, 3 * 2 * 4}));
  EXPECT_EQ(step_traffic(shape, rows, 5).sample.payload, 2U * 8);
}

TEST(Traffic, WhatLiesBetweenRowsTravelsToo) {
  EXPECT_EQ(row_bytes_moved(0, 20), 0U);
  EXPECT_EQ(row_bytes_moved(1, 20), 20U * 4);
  EXPECT_EQ(row_bytes_moved(3, 20), (2U * 32 + 20) * 4);
}

TEST(Traffic, MessagesOfASumAreTwiceTheShareOfTheOthers) {
  // Little: all to everybody.
  EXPECT_EQ(SumRoute::wire_bytes(2048, 0, 4), 3U * 8192);
  // Much: 2 (R - 1) / R of it.
  EXPECT_EQ(SumRoute::wire_bytes(1 << 20, 1, 4), 2U * 3 * (1 << 20));
  // Shares of a width that is no multiple: all the ranks' together are still 2 (R - 1) times it.
  std::uint64_t all = 0;
  for (std::int64_t rank = 0; rank < 3; ++rank) all += SumRoute::wire_bytes(100'001, rank, 3);
  EXPECT_EQ(all, 2U * 2 * 100'001 * 4);
}

TEST(Traffic, RowsOfABatch) {
  SubBatch batch;
  batch.items.push_back({SequenceSlot(0), 0, {1, 2, 3}, false});
  batch.items.push_back({SequenceSlot(1), 9, {}, true});
  batch.items.push_back({SequenceSlot(2), 0, {4, 5}, true, 1});
  const StepRows rows = StepRows::of(batch);
  EXPECT_EQ(rows.tokens, 6);
  EXPECT_EQ(rows.logits, 3);
  EXPECT_EQ(rows.sampled, 2);
}

}  // namespace
}  // namespace shoal
