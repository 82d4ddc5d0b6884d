// Drives a Scheduler against FakeRanks with two plans in flight for each coordinate and a clock of its own,
// and gathers what each request was sent.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "fake_rank.h"
#include "fake_tokenizer.h"

namespace shoal::engine {

struct Received {
  std::map<std::int32_t, std::string> text;
  std::map<std::int32_t, std::vector<TokenId>> ids;
  std::map<std::int32_t, FinishReason> finish;
  std::map<std::int32_t, std::string> matched;
  std::vector<PromptLogprobs> prompt_logprobs;
  Usage usage;
  Status error;
  int lasts = 0;
  int events_after_last = 0;
};

class SchedulerRig {
 public:
  struct Options {
    std::vector<std::int32_t> windows = {0};
    std::int32_t pages = 64;
    std::int32_t context = 512;
    std::int32_t max_sequences = 8;
    std::int32_t fixed_chunk = 0;
    std::int32_t vocabulary = 64;
    std::int32_t stages = 1;
    std::int32_t coordinates = 1;
    std::int32_t cp_force = 0;
    std::int32_t offload_places = 0;
    std::optional<policy::Retraction> retract = {};
  };

  explicit SchedulerRig(Options options) : options_(options) {
    for (std::size_t g = 0; g < options.windows.size(); ++g)
      model.groups.push_back({KvGroupId(static_cast<std::int32_t>(g)), {}, 1, 2, options.windows[g]});
    model.vocabulary = options.vocabulary;
    SchedulerOptions scheduler_options;
    scheduler_options.kv_groups = model.groups;
    scheduler_options.kv_pages.assign(options.windows.size(), options.pages);
    scheduler_options.vocabulary = options.vocabulary;
    scheduler_options.parameters = 100'000'000;
    scheduler_options.context = context();
    scheduler_options.max_sequences = options.max_sequences;
    scheduler_options.batch.fixed_chunk = options.fixed_chunk;
    scheduler_options.stages = options.stages;
    scheduler_options.plans_in_flight = options.stages + 1;
    scheduler_options.coordinates = options.coordinates;
    scheduler_options.cp_force = options.cp_force;
    scheduler_options.offload.places = options.offload_places;
    scheduler_options.offload.page_bytes.assign(options.windows.size(), 1000);
    scheduler_options.offload.page_bytes_all.assign(options.windows.size(), 1000);
    scheduler_options.retract = options.retract;
    scheduler.emplace(scheduler_options, std::make_shared<FakeTokenizer>(options.vocabulary));
    rank.emplace(model, scheduler_options.kv_pages, sequence_slots(options.max_sequences),
                 options.coordinates);
    rank->stages = options.stages;
    rank->places = options.offload_places;
  }

  std::uint64_t submit(GenerateRequest request) {
    const std::uint64_t id = ++next_id_;
    EXPECT_TRUE(validate(request, options_.vocabulary, context()).ok())
        << validate(request, options_.vocabulary, context()).message();
    received[id];
    scheduler->submit(
        RequestId(id), std::move(request), [this, id](OutputEvent&& event) { take(id, std::move(event)); },
        time);
    return id;
  }

  // Composes what may be composed, then answers one plan: the oldest, or, where `random` is set, any of those
  // that coordinates may be done with. False where none can be answered.
  bool step() {
    while (auto plan = scheduler->compose(time)) {
      rank->apply(*plan);
      plans.push_back(*std::move(plan));
    }
    check_in_flight();
    const auto done = next_done();
    if (!done) return false;
    const StepPlan plan = std::move(plans[*done]);
    plans.erase(plans.begin() + static_cast<std::ptrdiff_t>(*done));
    if (on_plan) on_plan(plan);
    StepResult result = rank->compute(plan);
    time += std::chrono::duration_cast<Clock::duration>(Seconds(rank->seconds));
    if (fail_next) {
      result.error = *std::move(fail_next);
      fail_next.reset();
    }
    scheduler->apply(std::move(result), time);
    check_balance();
    return true;
  }

  // Of those in flight, how many are for this coordinate.
  std::int32_t in_flight(std::int32_t coordinate) const {
    return static_cast<std::int32_t>(
        std::ranges::count_if(plans, [&](const StepPlan& plan) { return plan.is_for(coordinate); }));
  }

  // What is in flight is never answered, and the ranks begin anew.
  void lose_ranks(const std::string& why) {
    scheduler->lose_ranks({ErrorCode::kUnavailable, why}, time);
    for (; !plans.empty(); plans.pop_front()) {
      StepResult result;
      result.number = plans.front().number;
      result.error = why;
      result.lost = true;
      scheduler->apply(std::move(result), time);
    }
    check_balance();
    rank->begin_epoch(scheduler->begin_epoch());
  }

  void run(int most = 100000) {
    while (most-- > 0 && step()) {
    }
    EXPECT_GE(most, 0) << "still running";
    EXPECT_TRUE(scheduler->idle());
  }

  void check_balance() {
    for (const KvGroupStats& kv : scheduler->stats(time).kv)
      ASSERT_EQ(kv.free + kv.cached + kv.held + kv.fenced, kv.capacity);
  }

  void expect_all_free_after_flush() {
    for (const KvGroupStats& kv : scheduler->stats(time).kv) EXPECT_EQ(kv.free + kv.cached, kv.capacity);
    scheduler->flush_cache();
    for (const KvGroupStats& kv : scheduler->stats(time).kv) EXPECT_EQ(kv.free, kv.capacity);
    EXPECT_EQ(scheduler->stats(time).offloaded_bytes, 0);
    EXPECT_EQ(rank->open_sequences(), 0);
  }

  std::int32_t context() const {
    return std::min(options_.context, options_.pages * options_.coordinates * kPageTokens);
  }

  FakeModel model;
  std::optional<Scheduler> scheduler;
  std::optional<FakeRank> rank;
  std::deque<StepPlan> plans;
  std::map<std::uint64_t, Received> received;
  std::optional<std::string> fail_next;
  std::function<void(const StepPlan&)> on_plan;
  std::optional<std::mt19937> random;
  CoordinateSet stuck;  // coordinates that answer nothing
  TimePoint time = TimePoint{} + std::chrono::hours(1);

 private:
  void check_in_flight() const {
    for (std::int32_t c = 0; c < options_.coordinates; ++c) ASSERT_LE(in_flight(c), options_.stages + 1);
  }
  // Each coordinate runs its plans in order.
  std::optional<std::size_t> next_done() {
    std::vector<std::size_t> done;
    CoordinateSet busy = stuck;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      if (!busy.meets(plans[i].coordinates)) done.push_back(i);
      busy.add(plans[i].coordinates);
    }
    if (done.empty()) return std::nullopt;
    return done[random ? (*random)() % done.size() : 0];
  }
  void take(std::uint64_t id, OutputEvent&& event) {
    Received& r = received.at(id);
    if (r.lasts > 0) ++r.events_after_last;
    r.text[event.choice] += event.text;
    for (const TokenOutput& token : event.tokens) r.ids[event.choice].push_back(token.id);
    for (auto& logprobs : event.prompt_logprobs) r.prompt_logprobs.push_back(std::move(logprobs));
    if (event.finish) {
      EXPECT_FALSE(r.finish.contains(event.choice)) << "a choice ends once";
      r.finish[event.choice] = *event.finish;
      r.matched[event.choice] = event.matched_stop;
    }
    if (event.last) {
      ++r.lasts;
      r.usage = event.usage;
      r.error = event.error;
    }
  }

  Options options_;
  std::uint64_t next_id_ = 0;
};

inline std::vector<TokenId> prompt_of(std::size_t length, TokenId seed = 1) {
  std::vector<TokenId> prompt;
  for (std::size_t i = 0; i < length; ++i)
    prompt.push_back(static_cast<TokenId>((i * 7 + static_cast<std::size_t>(seed)) % 60 + 1));
  return prompt;
}

inline GenerateRequest request_of(std::vector<TokenId> prompt, std::int32_t max_tokens) {
  GenerateRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  return request;
}

inline GenerateRequest request_of(std::size_t length, TokenId seed, std::int32_t max_tokens) {
  return request_of(prompt_of(length, seed), max_tokens);
}

// What the model answers when nobody else is there.
inline std::vector<TokenId> expected(const SchedulerRig& rig, const GenerateRequest& request,
                                     std::uint32_t choice = 0) {
  SamplingParams sampling = request.sampling;
  sampling.choice = choice;
  sampling.stop_ids = {0};
  return rig.model.answer(request.prompt, sampling, request.max_tokens, request.ignore_eos);
}

}  // namespace shoal::engine
