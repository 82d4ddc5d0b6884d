#include "wire/rank_messages.h"

#include <gtest/gtest.h>

#include <random>

#include "wire/step_plan_codec.h"

namespace shoal::wire {
namespace {

StepPlan full_plan() {
  StepPlan plan;
  plan.number = PlanNumber(7);
  plan.epoch = Epoch(3);
  plan.copies = {{{1, 40, 3}, 7, true}, {{0, 2, 9}, 8, false}};
  plan.closes = {SequenceSlot(1), SequenceSlot(5)};
  SequenceOpen open;
  open.sequence = SequenceSlot(2);
  open.sampling.temperature = 0.5F;
  open.sampling.top_k = 4;
  open.sampling.logit_bias = {{3, 1.5F}, {9, -2}};
  open.sampling.seed = 0x123456789abcdefULL;
  open.sampling.stop_ids = {2};
  open.sampling.logprobs = 5;
  open.prompt = {1, 2, 3};
  open.output = {4};
  plan.coordinates = CoordinateSet(0x8000000000000005ULL);
  open.room = 77;
  open.room_tokens = 40;
  plan.opens = {open, SequenceOpen{}};
  plan.grants = {{SequenceSlot(2), KvGroupId(1), 4, {1, 77, 12}}};
  plan.releases = {{SequenceSlot(2), KvGroupId(1), 3}};
  plan.sub_batches = {{{{SequenceSlot(2), 10, {5, 6}, true, 3}, {SequenceSlot(0), 4, {}, false, -1}}}, {}};
  return plan;
}

StepResult full_result() {
  StepResult result;
  result.number = PlanNumber(7);
  result.error = "no memory";
  result.sampled = {{SequenceSlot(2), 17, -0.5F, {{17, -0.5F}, {3, -2}}}, {SequenceSlot(3), 1, 0, {}}};
  result.prompt_logprobs = {{SequenceSlot(2), 4, 8, -1, {{8, -1}}}};
  result.stage_seconds = {0.25, 0.5};
  result.copied_bytes = 1 << 20;
  result.copy_seconds = 0.125;
  return result;
}

TEST(StepPlanBytes, ComeBackAsTheyWent) {
  const auto bytes = encode(full_plan());
  const auto plan = decode_step_plan(bytes);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(encode(*plan), bytes);
  EXPECT_EQ(plan->number, PlanNumber(7));
  EXPECT_EQ(plan->coordinates.bits(), 0x8000000000000005ULL);
  ASSERT_EQ(plan->copies.size(), 2U);
  EXPECT_EQ(plan->copies[0].page, (PageId{1, 40, 3}));
  EXPECT_EQ(plan->copies[0].place, 7);
  EXPECT_TRUE(plan->copies[0].out);
  EXPECT_FALSE(plan->copies[1].out);
  EXPECT_EQ(plan->opens[0].sampling.seed, 0x123456789abcdefULL);
  EXPECT_EQ(plan->opens[0].sampling.logit_bias[1].second, -2);
  EXPECT_EQ(plan->opens[0].room, 77);
  EXPECT_EQ(plan->opens[0].room_tokens, 40);
  EXPECT_EQ(plan->opens[1].room, -1);
  EXPECT_EQ(plan->grants[0].page.generation, 12U);
  ASSERT_EQ(plan->sub_batches.size(), 2U);
  EXPECT_EQ(plan->sub_batches[0].items[0].tokens, (std::vector<TokenId>{5, 6}));
  EXPECT_TRUE(plan->sub_batches[0].items[0].sample);
  EXPECT_TRUE(plan->sub_batches[1].items.empty());
}

TEST(StepResultBytes, ComeBackAsTheyWent) {
  const auto bytes = encode(full_result());
  const auto result = decode_step_result(bytes);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(encode(*result), bytes);
  EXPECT_EQ(result->sampled[0].top[1].id, 3);
  EXPECT_EQ(result->error, "no memory");
  EXPECT_EQ(result->copied_bytes, 1U << 20);
  EXPECT_EQ(result->copy_seconds, 0.125);
}

// Every way of being too short, too long or damaged is an error or another valid message, never a crash.
template <typename Decode>
void expect_robust(const std::vector<std::byte>& bytes, Decode&& decode) {
  for (std::size_t n = 0; n < bytes.size(); ++n) EXPECT_FALSE(decode(std::span(bytes).first(n)).ok()) << n;
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode(longer).ok());
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::byte> damaged = bytes;
    for (unsigned hits = 1 + random() % 4; hits > 0; --hits)
      damaged[random() % damaged.size()] = static_cast<std::byte>(random());
    (void)decode(damaged);
  }
}

TEST(StepPlanBytes, DamagedOnesAreErrors) {
  expect_robust(encode(full_plan()), [](auto bytes) { return decode_step_plan(bytes); });
  expect_robust(encode(full_result()), [](auto bytes) { return decode_step_result(bytes); });
}

TEST(RankMessages, ComeBackAsTheyWent) {
  const Join join{"1.2.3", "boot:4", 2, 8, 77};
  const auto join_back = decode_join(encode(join));
  ASSERT_TRUE(join_back.ok());
  EXPECT_EQ(join_back->build, "1.2.3");
  EXPECT_EQ(join_back->host, "boot:4");
  EXPECT_EQ(join_back->rank, 2);
  EXPECT_EQ(join_back->pid, 77);

  const Assign assign{3,         {.tp = 2, .pp = 2},
                      Epoch(9),  "m.gguf",
                      "bf16",    "auto",
                      "q8_0",    "/c",
                      true,      4,
                      128,       true,
                      {10, 6},   {3, 1},
                      "decode",  "bf16",
                      true,      "10.0.0.1",
                      "prefill", "10.0.0.2",
                      8998,      "ib0"};
  const auto assign_back = decode_assign(encode(assign));
  ASSERT_TRUE(assign_back.ok());
  EXPECT_EQ(assign_back->degrees.pp, 2);
  EXPECT_EQ(assign_back->epoch, Epoch(9));
  EXPECT_EQ(assign_back->weights, "q8_0");
  EXPECT_EQ(assign_back->packed_cache, "/c");
  EXPECT_TRUE(assign_back->strict);
  EXPECT_TRUE(assign_back->network);
  EXPECT_EQ(assign_back->listen, "10.0.0.1");
  EXPECT_EQ(assign_back->role, "prefill");
  EXPECT_EQ(assign_back->handover_host, "10.0.0.2");
  EXPECT_EQ(assign_back->handover_port, 8998);
  EXPECT_EQ(assign_back->fabric, "ib0");
  EXPECT_EQ(assign_back->stage_layers, (std::vector<std::int32_t>{10, 6}));
  EXPECT_EQ(assign_back->tp_split, (std::vector<std::int32_t>{3, 1}));
  EXPECT_EQ(assign_back->balance, "decode");
  EXPECT_EQ(assign_back->sums, "bf16");

  const auto loaded = decode_loaded(encode(
      Loaded{Epoch(3), "f00d", {"v1/bf16/h3x64"}, "amx", 4096, 1 << 30, 7, 2, "10.0.0.1:7", {{4, 2, 1, 3}}}));
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->parts, (std::vector<KvPart>{{4, 2, 1, 3}}));
  EXPECT_EQ(loaded->epoch, Epoch(3));
  EXPECT_EQ(loaded->endpoint, "10.0.0.1:7");
  EXPECT_EQ(loaded->kv_ids, (std::vector<std::string>{"v1/bf16/h3x64"}));
  EXPECT_EQ(loaded->mapped_weights, 7U);
  const auto start =
      decode_start(encode(Start{99, 12, 2, "shoal-1", 1 << 20, {"a", "a"}, {":5", "b:6"}, PlanNumber(8)}));
  ASSERT_TRUE(start.ok());
  EXPECT_EQ(start->pages, 99);
  EXPECT_EQ(start->offload_places, 12);
  EXPECT_EQ(start->hosts.size(), 2U);
  EXPECT_EQ(start->endpoints, (std::vector<std::string>{":5", "b:6"}));
  EXPECT_EQ(start->first_plan, PlanNumber(8));
  const auto failed = decode_failed(encode(Failed{Epoch(2), "no memory"}));
  ASSERT_TRUE(failed.ok());
  EXPECT_EQ(failed->epoch, Epoch(2));
  EXPECT_EQ(failed->sentence, "no memory");
  const auto traffic = decode_traffic(encode(Traffic{{{1, 2, 3, 4, 5, 6, 7}, {5}}}));
  ASSERT_TRUE(traffic.ok());
  ASSERT_EQ(traffic->lines.size(), 2U);
  EXPECT_EQ(traffic->lines[0].network, 5U);
  EXPECT_EQ(traffic->lines[1].purpose, 5);
  EXPECT_EQ(*decode_epoch(encode_epoch(Epoch(4))), Epoch(4));
  EXPECT_EQ(*decode_sentence(encode_sentence("no")), "no");
}

TEST(RankMessages, DamagedOnesAreErrors) {
  expect_robust(encode(Join{"1.2.3", "boot:4", 2, 8, 77}), [](auto bytes) { return decode_join(bytes); });
  expect_robust(encode(Assign{}), [](auto bytes) { return decode_assign(bytes); });
  expect_robust(encode(Failed{Epoch(2), "no"}), [](auto bytes) { return decode_failed(bytes); });
  expect_robust(encode(Traffic{{{1}, {2}}}), [](auto bytes) { return decode_traffic(bytes); });
  expect_robust(encode_epoch(Epoch(2)), [](auto bytes) { return decode_epoch(bytes); });
  expect_robust(encode(Loaded{Epoch(1), "f", {"a", "b"}, "amx", 1, 2, 3, 4, "h:1", {{1, 2, 3, 4}}}),
                [](auto bytes) { return decode_loaded(bytes); });
  expect_robust(encode(Start{1, 0, 1, "m", 1, {"h"}, {"e"}, PlanNumber(1)}),
                [](auto bytes) { return decode_start(bytes); });
}

}  // namespace
}  // namespace shoal::wire
