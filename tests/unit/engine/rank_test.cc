// What a rank does with plans that fail: their sequences fail, the others go on as if nothing had happened.

#include "engine/rank.h"

#include <gtest/gtest.h>

#include <new>

#include "engine_rig.h"
#include "kernels/isa.h"
#include "kv/kv_store.h"

namespace shoal::engine {
namespace {

class RankTest : public testing::Test {
 protected:
  void SetUp() override {
    SHOAL_NEEDS_STORIES();
    const auto isa = kernels::chosen_isa();
    ASSERT_TRUE(isa.ok());
    const kernels::Context context{&pool_, *isa, kernels::Activations::kAuto, true};
    model::LoadOptions load;
    load.context = context;
    auto model = model::Model::load(stories(), load);
    ASSERT_TRUE(model.ok()) << model.status().message();
    model_ = std::move(*model);
    std::vector<KvLayout> layouts;
    for (const KvGroup& group : model_->kv_groups()) {
      layouts.push_back(model_->pool_layout(group.id, KvDType::kBf16));
      layouts.back().slots = 8;
    }
    auto store = kv::KvStore::make(layouts);
    ASSERT_TRUE(store.ok());
    store_.emplace(std::move(*store));
    const auto observer = [this](const SamplingParams&, std::uint64_t, TokenId, std::span<const float>) {
      if (throws_) throw std::bad_alloc();
    };
    auto offload = kv::OffloadBuffer::make(layouts, 2);
    ASSERT_TRUE(offload.ok());
    offload_.emplace(std::move(*offload));
    Rank::Options options{4, observer};
    options.offload = &*offload_;
    rank_.emplace(*model_, *store_, context, options);
  }

  StepPlan plan() {
    StepPlan plan;
    plan.number = PlanNumber(++number_);
    plan.sub_batches.resize(1);
    return plan;
  }
  // Opens the sequence in the slot of its number, with one page, and computes a prompt.
  static void begin(StepPlan& plan, std::int32_t slot, std::int32_t page) {
    SequenceOpen open;
    open.sequence = SequenceSlot(slot);
    open.sampling.temperature = 0;
    plan.opens.push_back(open);
    plan.grants.push_back({open.sequence, KvGroupId(0), 0, {0, page, 1}});
    WorkItem item;
    item.sequence = open.sequence;
    item.tokens = prompt_of(10, 1);
    item.sample = true;
    plan.sub_batches[0].items.push_back(item);
  }
  static void decode(StepPlan& plan, std::int32_t slot, std::int32_t start) {
    WorkItem item;
    item.sequence = SequenceSlot(slot);
    item.start = start;
    item.sample = true;
    plan.sub_batches[0].items.push_back(item);
  }
  // Sequence 0 decodes to the end beside what failed, and slot 1 can be used again.
  void expect_the_rest_is_well(TokenId first) {
    StepPlan composed_before = plan();
    decode(composed_before, 0, 10);
    decode(composed_before, 1, 10);
    composed_before.grants.push_back({SequenceSlot(1), KvGroupId(0), 1, {0, 5, 1}});
    StepResult result = rank_->run(composed_before);
    EXPECT_EQ(result.error, "");
    ASSERT_EQ(result.sampled.size(), 1U) << "work of what failed is skipped";
    EXPECT_EQ(result.sampled[0].sequence, SequenceSlot(0));

    StepPlan closes = plan();
    closes.closes.push_back(SequenceSlot(1));
    EXPECT_EQ(rank_->run(closes).error, "");
    StepPlan again = plan();
    begin(again, 1, 5);
    result = rank_->run(again);
    EXPECT_EQ(result.error, "");
    ASSERT_EQ(result.sampled.size(), 1U);
    EXPECT_EQ(result.sampled[0].id, first) << "the same prompt, greedy";
  }

  ThreadPool pool_{{.threads = 2, .spin = std::chrono::microseconds(0), .pin = false}};
  std::unique_ptr<model::Model> model_;
  std::optional<kv::KvStore> store_;
  std::optional<kv::OffloadBuffer> offload_;
  std::optional<Rank> rank_;
  std::uint64_t number_ = 0;
  bool throws_ = false;
};

TEST_F(RankTest, WorkForOthersIsRefused) {
  StepPlan first = plan();
  first.coordinates = CoordinateSet::of(0);
  begin(first, 0, 0);
  EXPECT_EQ(rank_->run(first).error, "");
  StepPlan other = plan();
  other.coordinates = CoordinateSet::first(2);
  EXPECT_NE(rank_->run(other).error.find("more than 1 coordinates"), std::string::npos);
}

TEST_F(RankTest, APlanThatThrowsFailsItsSequencesAlone) {
  StepPlan first = plan();
  begin(first, 0, 0);
  const StepResult answer = rank_->run(first);
  ASSERT_EQ(answer.sampled.size(), 1U) << answer.error;
  StepPlan failing = plan();
  begin(failing, 1, 1);
  throws_ = true;
  const StepResult result = rank_->run(failing);
  throws_ = false;
  EXPECT_NE(result.error, "");
  EXPECT_TRUE(result.sampled.empty());
  expect_the_rest_is_well(answer.sampled[0].id);
}

TEST_F(RankTest, APlanThatDoesNotFitTheTableFailsItsSequencesAlone) {
  StepPlan first = plan();
  begin(first, 0, 0);
  begin(first, 2, 2);
  const StepResult answer = rank_->run(first);
  ASSERT_EQ(answer.sampled.size(), 2U) << answer.error;
  StepPlan misfit = plan();
  misfit.closes.push_back(SequenceSlot(3));  // not open: nothing after it is applied by the ordinary way
  misfit.closes.push_back(SequenceSlot(2));
  begin(misfit, 1, 1);
  EXPECT_NE(rank_->run(misfit).error.find("closes sequence 3"), std::string::npos);
  expect_the_rest_is_well(answer.sampled[0].id);
  // The misfit's closes count: slot 2 is free.
  StepPlan reuse = plan();
  begin(reuse, 2, 2);
  EXPECT_EQ(rank_->run(reuse).error, "");
}

// A prompt's page goes to a place and comes back to another slot, over one that has been written meanwhile.
TEST_F(RankTest, AKeptPageGoesOnElsewhere) {
  StepPlan first = plan();
  begin(first, 0, 0);
  begin(first, 1, 1);
  const StepResult answer = rank_->run(first);
  ASSERT_EQ(answer.sampled.size(), 2U) << answer.error;
  StepPlan goes_on = plan();
  decode(goes_on, 0, 10);
  const StepResult stayed = rank_->run(goes_on);
  ASSERT_EQ(stayed.sampled.size(), 1U) << stayed.error;

  // Its page is another's in the plan that keeps it; both copies of a place in one plan, in order.
  StepPlan keeps = plan();
  keeps.copies.push_back({{0, 1, 1}, 1, true});
  keeps.closes.push_back(SequenceSlot(1));
  begin(keeps, 2, 1);
  const StepResult kept = rank_->run(keeps);
  EXPECT_EQ(kept.error, "");
  EXPECT_EQ(kept.copied_bytes, offload_->page_bytes(0));
  EXPECT_GT(kept.copy_seconds, 0);
  StepPlan returns = plan();
  returns.copies.push_back({{0, 6, 1}, 1, false});
  returns.copies.push_back({{0, 0, 1}, 1, true});
  SequenceOpen open;
  open.sequence = SequenceSlot(1);
  open.sampling.temperature = 0;
  open.output = {answer.sampled[1].id};
  returns.opens.push_back(open);
  returns.grants.push_back({open.sequence, KvGroupId(0), 0, {0, 6, 1}});
  decode(returns, 1, 10);
  const StepResult back = rank_->run(returns);
  ASSERT_EQ(back.sampled.size(), 1U) << back.error;
  EXPECT_EQ(back.sampled[0].id, stayed.sampled[0].id) << "the same prompt, greedy";
}

// Sequences that are in none of its batches depend on them.
TEST_F(RankTest, CopiesAreDoneWhateverBecomesOfThePlan) {
  StepPlan first = plan();
  begin(first, 0, 0);
  begin(first, 1, 1);
  const StepResult answer = rank_->run(first);
  StepPlan fails = plan();
  fails.copies.push_back({{0, 0, 1}, 0, true});
  begin(fails, 3, 0);
  fails.sub_batches[0].items.back().tokens = prompt_of(12, 9);
  throws_ = true;
  EXPECT_NE(rank_->run(fails).error, "");
  throws_ = false;
  StepPlan returns = plan();
  returns.copies.push_back({{0, 0, 1}, 0, false});
  decode(returns, 0, 10);
  decode(returns, 1, 10);
  const StepResult back = rank_->run(returns);
  ASSERT_EQ(back.sampled.size(), 2U) << back.error;
  EXPECT_EQ(back.sampled[0].id, back.sampled[1].id) << "the same prompt, greedy";
}

TEST_F(RankTest, CopiesOfWhatIsNotThereAreRefused) {
  for (const PageCopy& copy :
       {PageCopy{{0, 8, 1}, 0, true}, PageCopy{{0, -1, 1}, 0, true}, PageCopy{{1, 0, 1}, 0, false},
        PageCopy{{-1, 0, 1}, 0, false}, PageCopy{{0, 0, 1}, 2, true}, PageCopy{{0, 0, 1}, -1, true}}) {
    StepPlan refused = plan();
    refused.copies.push_back(copy);
    EXPECT_NE(rank_->run(refused).error.find("there is no such thing here"), std::string::npos);
  }
}

}  // namespace
}  // namespace shoal::engine
