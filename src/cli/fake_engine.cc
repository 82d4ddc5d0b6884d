#include "cli/fake_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/mix64.h"
#include "policy/admission.h"
#include "policy/batch.h"

namespace shoal::cli {
namespace {

constexpr std::int64_t kPageTokens = 32;
constexpr std::int64_t kWords = 20'000;

std::uint64_t mixed(std::uint64_t x) { return mix64(x + 0x9e3779b97f4a7c15); }

policy::CostModel::Coefficients coefficients(const FakeEngineOptions& options) {
  return {options.decode_ms * 1e-3, options.decode_row_us * 1e-6, 1 / options.prefill_tokens_per_s, 0, 0};
}

std::int64_t pages_for(std::int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

}  // namespace

TokenId fake_token(std::uint64_t seed, std::uint32_t choice, std::int64_t index) {
  return static_cast<TokenId>(mixed(mixed(seed) ^ mixed(choice) ^ static_cast<std::uint64_t>(index)) %
                              kWords);
}

std::string fake_text(TokenId id, std::int64_t index) {
  return fmt::format("{}w{}", index == 0 ? "" : " ", id);
}

FakeEngine::FakeEngine(wire::EventLoop& loop, FakeEngineOptions options)
    : loop_(loop),
      options_(options),
      cost_(coefficients(options)),
      free_pages_(options.pages),
      timer_(loop) {}

bool FakeEngine::submit(std::shared_ptr<FakeSequence> sequence) {
  if (std::ssize(queue_) >= options_.max_queue) return false;
  sequence->arrived = now();
  queue_.push_back(std::move(sequence));
  if (!stepping_) begin_step();
  return true;
}

void FakeEngine::wake() {
  if (!stepping_) begin_step();
}

std::int64_t FakeEngine::uncached_tokens() const {
  std::int64_t tokens = 0;
  for (const auto& sequence : queue_) tokens += sequence->away ? 0 : total(*sequence);
  for (const auto& sequence : running_)
    tokens += sequence->away ? 0 : std::max<std::int64_t>(0, total(*sequence) - sequence->computed - 1);
  return tokens;
}

void FakeEngine::release(FakeSequence& sequence) {
  free_pages_ += sequence.held_pages;
  sequence.held_pages = 0;
}

void FakeEngine::drop_cancelled() {
  std::erase_if(queue_, [](const auto& sequence) { return sequence->cancelled; });
  std::erase_if(running_, [this](const auto& sequence) {
    if (sequence->cancelled) release(*sequence);
    return sequence->cancelled;
  });
}

// A sequence takes the pages of its whole answer at once: a fake never preempts.
void FakeEngine::admit() {
  while (!queue_.empty()) {
    FakeSequence& next = *queue_.front();
    const std::int64_t needed = std::min(pages_for(next.prompt_tokens + next.max_tokens), options_.pages);
    const policy::PoolDemand pool{free_pages_, 0, needed};
    if (!policy::admits({running(), options_.max_sequences, {&pool, 1}})) return;
    free_pages_ -= needed;
    next.held_pages = needed;
    running_.push_back(std::move(queue_.front()));
    queue_.pop_front();
    // Not from here: what it does may come back to this queue.
    if (next.on_admitted)
      loop_.post([sequence = running_.back()] {
        if (!sequence->cancelled) sequence->on_admitted();
      });
  }
}

void FakeEngine::arrived(const std::shared_ptr<FakeSequence>& sequence) {
  if (sequence->cancelled || !std::exchange(sequence->away, false)) return;
  sequence->computed = total(*sequence);
  put_out(sequence);
  if (!stepping_) begin_step();
}

// Its next token.
void FakeEngine::put_out(const std::shared_ptr<FakeSequence>& sequence) {
  ++sequence->output;
  const bool last = sequence->output >= sequence->max_tokens;
  if (last) {
    release(*sequence);
    std::erase(running_, sequence);
  }
  sequence->on_token(*sequence, last);
}

void FakeEngine::begin_step() {
  drop_cancelled();
  admit();
  step_.clear();
  policy::StepShape shape;
  std::vector<policy::PrefillCandidate> candidates;
  std::vector<std::shared_ptr<FakeSequence>> prompts;
  const TimePoint time = now();
  for (const auto& sequence : running_) {
    if (sequence->away) continue;
    const std::int64_t left = total(*sequence) - sequence->computed;
    if (sequence->computed > 0 && left <= 1) {
      shape.add_decode(sequence->computed);
      step_.emplace_back(sequence, 0);
    } else {
      policy::PrefillCandidate& candidate = candidates.emplace_back();
      candidate.context = sequence->computed;
      candidate.remaining = candidate.limit = left;
      candidate.waited = seconds_between(sequence->arrived, time);
      prompts.push_back(sequence);
    }
  }
  const policy::StepShape decodes = shape;
  policy::BatchLimits limits;
  limits.max_rows = 8192;
  for (const policy::PrefillShare& share : policy::share_prefill(cost_, {&decodes, 1}, candidates, limits)) {
    shape.add_prefill(candidates[share.candidate].context, share.tokens);
    step_.emplace_back(prompts[share.candidate], share.tokens);
  }
  stepping_ = !step_.empty();
  if (!stepping_) return;
  // Late timers do not add up: a step begins where the one before it should have ended.
  const auto length = std::chrono::duration_cast<Clock::duration>(Seconds(cost_.predict(shape)));
  const TimePoint begin = time - step_end_ < std::chrono::milliseconds(50) ? step_end_ : time;
  step_end_ = begin + length;
  const auto wait = std::chrono::duration_cast<std::chrono::milliseconds>(step_end_ - time);
  if (wait.count() <= 0) {
    loop_.post([this] { end_step(); });
  } else {
    timer_.start(wait, [this] { end_step(); });
  }
}

void FakeEngine::end_step() {
  const auto done = std::move(step_);
  step_.clear();
  for (const auto& [sequence, tokens] : done) {
    if (sequence->cancelled) continue;
    sequence->computed += tokens == 0 ? 1 : tokens;
    if (sequence->computed < total(*sequence)) continue;
    put_out(sequence);
  }
  begin_step();
}

}  // namespace shoal::cli
