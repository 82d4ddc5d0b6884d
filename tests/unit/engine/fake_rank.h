// The ranks of all coordinates, for tests of the scheduler: they apply plans strictly and "compute" by
// writing each token into the page and place where its KV would lie. What they sample is a hash of all that a
// query may see, read back through the page table: a page given to two sequences, freed too early or cached
// under the wrong prefix changes the answer. Tables change when a plan comes, work may be done later: a slot
// or page given out before work that needs it is done shows.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kv/page_table.h"
#include "layout/kv_groups.h"
#include "layout/step_plan.h"

namespace shoal::engine {

struct FakeModel {
  std::int32_t vocabulary = 64;
  std::vector<KvGroup> groups;

  static std::uint64_t fold(std::uint64_t hash, TokenId token) {
    return (hash ^ static_cast<std::uint32_t>(token + 1)) * 0x100000001b3ULL;
  }
  // Of the logits after position p: what each group sees of the tokens.
  template <typename TokenAt>
  std::uint64_t hash(std::int64_t p, TokenAt&& token_at) const {
    std::uint64_t all = 0;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const std::int32_t window = groups[g].window;
      std::uint64_t h = 0xcbf29ce484222325ULL + g;
      for (std::int64_t at = window > 0 ? std::max<std::int64_t>(0, p - window + 1) : 0; at <= p; ++at)
        h = fold(h, token_at(g, at));
      all = all * 31 + h;
    }
    return all;
  }
  TokenId sample(std::uint64_t logits, const SamplingParams& sampling, std::size_t index) const {
    const std::uint64_t mixed =
        (logits + sampling.seed * 77 + sampling.choice * 1009 + index) * 0x9e3779b97f4a7c15ULL;
    const auto id = static_cast<TokenId>((mixed >> 33) % static_cast<std::uint64_t>(vocabulary));
    if (index < static_cast<std::size_t>(sampling.min_tokens) &&
        std::ranges::find(sampling.stop_ids, id) != sampling.stop_ids.end())
      return id + 1;  // only 0 ends answers here
    return id;
  }

  // The output ids a request must get, computed without pages: at most n, up to and with the id 0.
  std::vector<TokenId> answer(std::vector<TokenId> tokens, const SamplingParams& sampling, std::int32_t n,
                              bool ignore_eos) const {
    std::vector<TokenId> output;
    while (static_cast<std::int32_t>(output.size()) < n) {
      const std::uint64_t logits = hash(std::ssize(tokens) - 1, [&](std::size_t, std::int64_t at) {
        return tokens[static_cast<std::size_t>(at)];
      });
      output.push_back(sample(logits, sampling, output.size()));
      tokens.push_back(output.back());
      if (output.back() == 0 && !ignore_eos) break;
    }
    return output;
  }
};

class FakeRank {
 public:
  FakeRank(FakeModel model, std::vector<std::int32_t> pages, std::int32_t slots, std::int32_t coordinates = 1)
      : coordinates_(coordinates), model_(std::move(model)), rows_(static_cast<std::size_t>(slots)) {
    for (std::int32_t c = 0; c < coordinates; ++c) {
      for (const std::int32_t n : pages)
        bytes_.emplace_back(static_cast<std::size_t>(n) * kPageTokens, TokenId{-999});
    }
    generations_.resize(bytes_.size());
  }

  StepResult run(const StepPlan& plan) {
    apply(plan);
    return compute(plan);
  }

  // What every rank does with a plan, in number order.
  void apply(const StepPlan& plan) {
    EXPECT_EQ(plan.number.value, ++plans_) << "plans are consecutive";
    EXPECT_EQ(std::ssize(plan.sub_batches), coordinates_);
    for (const SequenceSlot slot : plan.closes) {
      EXPECT_TRUE(at(slot).open) << "closes what is open";
      at(slot) = {};
    }
    for (const SequenceOpen& open : plan.opens) {
      Row& row = at(open.sequence);
      EXPECT_FALSE(row.open) << "a slot is reused only after its close";
      for (const SequenceSlot closed : plan.closes) EXPECT_NE(closed, open.sequence) << "P4";
      row.open = true;
      row.sampling = open.sampling;
      row.outputs = open.output.size();
      row.last = open.output.empty() ? -1 : open.output.back();
      row.prompt = open.prompt;
      row.room = open.room;
      row.tables.assign(model_.groups.size(), {});
    }
    for (const PageGrant& grant : plan.grants) take(grant);
    for (const PageRelease& release : plan.releases) {
      auto& table = at(release.sequence).tables[static_cast<std::size_t>(release.group.value)];
      for (std::int32_t i = 0; i < release.first_kept; ++i) table[static_cast<std::size_t>(i)] = {-1, -1};
    }
  }

  // What the coordinates do that it is for.
  StepResult compute(const StepPlan& plan) {
    StepResult result;
    result.number = plan.number;
    plan_ = &plan;
    for (const PageCopy& copy : plan.copies) move(copy);
    result.copied_bytes = plan.copies.size() * 1000;
    result.copy_seconds = static_cast<double>(plan.copies.size()) * seconds_per_copy;
    rows_computed_ = 0;
    for (std::int32_t c = 0; c < coordinates_; ++c) {
      const std::vector<WorkItem>& items = plan.sub_batches[static_cast<std::size_t>(c)].items;
      EXPECT_TRUE(plan.is_for(c) || items.empty());
      for (const WorkItem& item : items) write(item, c, result);
    }
    for (const SubBatch& batch : plan.sub_batches) {
      for (const WorkItem& item : batch.items) sample(item, result);
    }
    seconds = 1e-3 * static_cast<double>(rows_computed_) + 1e-4;
    result.stage_seconds.assign(static_cast<std::size_t>(stages), seconds);
    return result;
  }

  // Another epoch: nothing is open, whatever the pages held is gone.
  void begin_epoch(PlanNumber next) {
    rows_.assign(rows_.size(), {});
    for (auto& pool : bytes_) std::ranges::fill(pool, TokenId{-999});
    places_.clear();
    plans_ = next.value - 1;
  }

  std::int32_t stages = 1;
  double seconds = 0;  // of the last plan
  double seconds_per_copy = 1e-6;
  std::int32_t places = 0;  // of each group, that pages are kept in

  // Pages of prompts that go to another worker, by room, group and logical page.
  std::map<std::uint64_t, std::map<std::pair<std::int32_t, std::int32_t>, PageId>> departed;

  std::int64_t rows_computed() const { return rows_computed_; }
  std::int32_t open_sequences() const {
    return static_cast<std::int32_t>(std::ranges::count_if(rows_, [](const Row& row) { return row.open; }));
  }

  // What lies in a page: its tokens.
  std::span<TokenId> page(PageId page) {
    return std::span(bytes_.at(static_cast<std::size_t>(page.pool)))
        .subspan(static_cast<std::size_t>(page.slot) * kPageTokens, kPageTokens);
  }

 private:
  struct Place {
    std::int32_t pool = -1;
    std::int32_t slot = -1;
  };
  struct Row {
    bool open = false;
    SamplingParams sampling;
    std::vector<TokenId> prompt;
    std::size_t outputs = 0;
    TokenId last = -1;
    std::int64_t room = -1;
    std::vector<std::vector<Place>> tables;  // by group and logical page
  };

  Row& at(SequenceSlot slot) { return rows_.at(static_cast<std::size_t>(slot.value)); }

  void take(const PageGrant& grant) {
    const auto g = static_cast<std::size_t>(grant.group.value);
    EXPECT_TRUE(at(grant.sequence).open);
    EXPECT_EQ(grant.page.pool % std::ssize(model_.groups), grant.group.value);
    auto& table = at(grant.sequence).tables[g];
    if (table.size() <= static_cast<std::size_t>(grant.logical_page))
      table.resize(static_cast<std::size_t>(grant.logical_page) + 1);
    table[static_cast<std::size_t>(grant.logical_page)] = {grant.page.pool, grant.page.slot};
    if (const std::int64_t room = at(grant.sequence).room; room >= 0)
      departed[static_cast<std::uint64_t>(room)][{grant.group.value, grant.logical_page}] = grant.page;
    std::uint32_t& generation = generations_[static_cast<std::size_t>(grant.page.pool)][grant.page.slot];
    EXPECT_GE(grant.page.generation, generation) << "G2";
    generation = grant.page.generation;
  }

  std::int32_t owner(const Place& place) const { return owner(place.pool); }
  std::int32_t owner(std::int32_t pool) const {
    return pool / static_cast<std::int32_t>(model_.groups.size());
  }

  void move(const PageCopy& copy) {
    ASSERT_LT(copy.place, places);
    ASSERT_TRUE(plan_->is_for(owner(copy.page.pool))) << "its answer says that the copy is done";
    const std::span<TokenId> at = page(copy.page);
    std::vector<TokenId>& kept = places_[{copy.page.pool, copy.place}];
    if (copy.out) {
      kept.assign(at.begin(), at.end());
    } else {
      ASSERT_EQ(kept.size(), at.size()) << "what comes back has gone there";
      std::ranges::copy(kept, at.begin());
    }
  }

  TokenId& place(const Row& row, std::size_t group, std::int64_t position) {
    const Place& at = row.tables[group].at(static_cast<std::size_t>(position / kPageTokens));
    EXPECT_GE(at.slot, 0) << "position " << position << " was given back";
    EXPECT_TRUE(plan_->is_for(owner(at))) << "position " << position << " lies elsewhere";
    return bytes_[static_cast<std::size_t>(at.pool)].at(static_cast<std::size_t>(at.slot) * kPageTokens +
                                                        static_cast<std::size_t>(position % kPageTokens));
  }

  void write(const WorkItem& item, std::int32_t coordinate, StepResult& result) {
    Row& row = at(item.sequence);
    EXPECT_TRUE(row.open);
    std::vector<TokenId> tokens = item.tokens;
    if (tokens.empty()) tokens.push_back(row.last);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::int64_t position = item.start + static_cast<std::int64_t>(i);
      for (std::size_t g = 0; g < row.tables.size(); ++g) {
        place(row, g, position) = tokens[i];
        const Place& page = row.tables[g][static_cast<std::size_t>(position / kPageTokens)];
        EXPECT_TRUE(item.tokens.empty() || owner(page) == coordinate) << "P12";
      }
      ++rows_computed_;
      const bool scored =
          item.prompt_logprobs >= 0 && static_cast<std::size_t>(position) + 1 < row.prompt.size();
      if (scored)
        result.prompt_logprobs.push_back({item.sequence,
                                          static_cast<std::int32_t>(position + 1),
                                          row.prompt[static_cast<std::size_t>(position) + 1],
                                          -1.0F,
                                          {}});
    }
  }

  void sample(const WorkItem& item, StepResult& result) {
    if (!item.sample) return;
    Row& row = at(item.sequence);
    const std::uint64_t logits =
        model_.hash(item.start + item.count() - 1,
                    [&](std::size_t g, std::int64_t position) { return place(row, g, position); });
    row.last = model_.sample(logits, row.sampling, row.outputs++);
    SampledToken token;
    token.sequence = item.sequence;
    token.id = row.last;
    result.sampled.push_back(token);
  }

  std::int32_t coordinates_;
  FakeModel model_;
  std::vector<Row> rows_;
  const StepPlan* plan_ = nullptr;  // being computed
  // By pool.
  std::vector<std::vector<TokenId>> bytes_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<TokenId>> places_;  // by pool and place
  std::vector<std::map<std::int32_t, std::uint32_t>> generations_;
  std::uint64_t plans_ = 0;
  std::int64_t rows_computed_ = 0;
};

}  // namespace shoal::engine
