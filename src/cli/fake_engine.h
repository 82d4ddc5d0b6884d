// An engine without a model: takes the time that one would take, and answers with words drawn from the seed.
//
// Steps are composed by the same policy as those of a real engine, with a cost model that is told its
// coefficients; the output of a choice is a function of (seed, choice, index), so that another fake goes on
// with it exactly.
//
// Thread-safety: of its loop.
// Ownership: owns its sequences; holds each answer until its end.
// Invariants: pages held and free add up to its pages, and all are free when nothing runs.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/ids.h"
#include "policy/cost_model.h"
#include "wire/event_loop.h"

namespace shoal::cli {

struct FakeEngineOptions {
  double prefill_tokens_per_s = 20'000;
  double decode_ms = 20;        // of a step, whatever is in it
  double decode_row_us = 50;    // more for each sequence in it
  std::int64_t pages = 16'384;  // of 32 tokens
  std::int32_t max_sequences = 256;
  std::int32_t max_queue = 4096;
};

// A token of the output that (seed, choice) names, and its text.
TokenId fake_token(std::uint64_t seed, std::uint32_t choice, std::int64_t index);
std::string fake_text(TokenId id, std::int64_t index);

struct FakeSequence {
  std::uint64_t seed = 0;
  std::uint32_t choice = 0;
  std::int64_t prompt_tokens = 1;
  std::int64_t max_tokens = 16;
  std::int64_t output = 0;  // tokens out, those that another worker has put out included
  std::function<void(FakeSequence& sequence, bool last)> on_token;  // after each; output counts it
  // Its prompt is computed elsewhere: admitted, it holds its pages until arrived().
  bool away = false;
  std::function<void()> on_admitted;
  // The engine's own.
  std::int64_t computed = 0;
  std::int64_t held_pages = 0;
  TimePoint arrived{};
  bool cancelled = false;
};

class FakeEngine {
 public:
  FakeEngine(wire::EventLoop& loop, FakeEngineOptions options);

  // False where the queue is full.
  bool submit(std::shared_ptr<FakeSequence> sequence);
  // What was cancelled goes with the next step.
  void wake();
  // The prompt of one that was away is there, and its first token.
  void arrived(const std::shared_ptr<FakeSequence>& sequence);

  std::int32_t running() const { return static_cast<std::int32_t>(running_.size()); }
  std::int32_t waiting() const { return static_cast<std::int32_t>(queue_.size()); }
  std::int64_t uncached_tokens() const;
  std::int64_t free_pages() const { return free_pages_; }
  const FakeEngineOptions& options() const { return options_; }

 private:
  void begin_step();
  void end_step();
  void admit();
  void drop_cancelled();
  void put_out(const std::shared_ptr<FakeSequence>& sequence);
  void release(FakeSequence& sequence);
  std::int64_t total(const FakeSequence& sequence) const { return sequence.prompt_tokens + sequence.output; }

  wire::EventLoop& loop_;
  const FakeEngineOptions options_;
  const policy::CostModel cost_;
  std::int64_t free_pages_;
  std::deque<std::shared_ptr<FakeSequence>> queue_;
  std::vector<std::shared_ptr<FakeSequence>> running_;
  // Of the step under way: tokens of prompts by running sequence; 0 decodes.
  std::vector<std::pair<std::shared_ptr<FakeSequence>, std::int64_t>> step_;
  bool stepping_ = false;
  TimePoint step_end_{};
  wire::LoopTimer timer_;
};

}  // namespace shoal::cli
