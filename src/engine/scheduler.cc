#include "engine/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>

#include "core/log.h"

namespace shoal::engine {
namespace {

Status out_of_range(const char* field, const std::string& sentence) {
  return {ErrorCode::kInvalidArgument, sentence, field};
}

Status validate_sampling(const SamplingParams& sampling, std::int64_t vocabulary) {
  const auto known = [&](TokenId id) { return id >= 0 && id < vocabulary; };
  if (!std::isfinite(sampling.temperature) || sampling.temperature < 0)
    return out_of_range("temperature", "temperature must be a number of at least 0");
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    return out_of_range("top_p", "top_p must be above 0 and at most 1");
  if (!(sampling.min_p >= 0 && sampling.min_p <= 1))
    return out_of_range("min_p", "min_p must be between 0 and 1");
  if (sampling.top_k < 0) return out_of_range("top_k", "top_k must be at least 0");
  if (!std::isfinite(sampling.repetition_penalty) || sampling.repetition_penalty <= 0)
    return out_of_range("repetition_penalty", "repetition_penalty must be above 0");
  if (!std::isfinite(sampling.frequency_penalty))
    return out_of_range("frequency_penalty", "frequency_penalty must be a number");
  if (!std::isfinite(sampling.presence_penalty))
    return out_of_range("presence_penalty", "presence_penalty must be a number");
  if (sampling.logprobs < -1 || sampling.logprobs > kMaxLogprobs)
    return out_of_range("logprobs",
                        fmt::format("at most {} log-probabilities can be asked for", kMaxLogprobs));
  for (const auto& [id, bias] : sampling.logit_bias) {
    if (!known(id))
      return out_of_range("logit_bias",
                          fmt::format("logit_bias names token {}, the vocabulary has {}", id, vocabulary));
    if (std::isnan(bias)) return out_of_range("logit_bias", "logit_bias must be made of numbers");
  }
  return {};
}

}  // namespace

Status validate(const GenerateRequest& request, std::int64_t vocabulary, std::int32_t context) {
  const auto known = [&](TokenId id) { return id >= 0 && id < vocabulary; };
  if (request.prompt.empty()) return out_of_range("prompt", "the prompt has no tokens");
  for (const TokenId id : request.prompt) {
    if (!known(id))
      return out_of_range(
          "prompt", fmt::format("the prompt has token {}, the vocabulary ends at {}", id, vocabulary - 1));
  }
  if (request.n < 1 || request.n > kMaxChoices)
    return out_of_range("n", fmt::format("n must be between 1 and {}", kMaxChoices));
  if (request.max_tokens < 0) return out_of_range("max_tokens", "max_tokens must be at least 0");
  if (request.sampling.min_tokens < 0 || request.sampling.min_tokens > request.max_tokens)
    return out_of_range("min_tokens", "min_tokens must be between 0 and max_tokens");
  if (std::ranges::any_of(request.stop, [](const std::string& stop) { return stop.empty(); }))
    return out_of_range("stop", "a stop string must not be empty");
  if (!std::ranges::all_of(request.stop_token_ids, known))
    return out_of_range("stop_token_ids", fmt::format("stop_token_ids must be below {}", vocabulary));
  if (request.prompt_logprobs < -1 || request.prompt_logprobs > kMaxLogprobs)
    return out_of_range("prompt_logprobs",
                        fmt::format("at most {} log-probabilities can be asked for", kMaxLogprobs));
  SHOAL_TRY(validate_sampling(request.sampling, vocabulary));
  SHOAL_TRY(validate_resume(request, vocabulary, context));
  // A generated token needs a position only once another one follows it, but one must be left.
  const auto length = static_cast<std::int64_t>(request.prompt.size()) + (request.max_tokens > 0 ? 1 : 0);
  if (length > context)
    return {ErrorCode::kTooLong,
            fmt::format("the prompt has {} tokens and the context holds {}, the answer included",
                        request.prompt.size(), context),
            "prompt"};
  return {};
}

Scheduler::Scheduler(SchedulerOptions options, std::shared_ptr<const tokenizer::Tokenizer> tokenizer)
    : options_(std::move(options)),
      tokenizer_(std::move(tokenizer)),
      cache_(options_.kv_groups, options_.kv_pages, options_.coordinates),
      cost_(policy::CostModel::guess_for(options_.parameters)),
      offload_(options_.coordinates * cache_.groups(), options_.offload.places),
      lanes_(static_cast<std::size_t>(options_.coordinates)),
      busy_(static_cast<std::size_t>(options_.stages)) {
  totals_.stage_seconds.resize(busy_.size());
  for (TokenId id = 0; id < tokenizer_->vocab_size(); ++id) {
    if (tokenizer_->is_end_of_generation(id) && id < options_.vocabulary) end_ids_.push_back(id);
  }
  for (std::int32_t slot = sequence_slots(options_.max_sequences); slot-- > 0;)
    free_slots_.emplace_back(slot);
}

Scheduler::~Scheduler() {
  for (auto& [sequence, owner] : sequences_) cache_.release(sequence->pages);
}

void Scheduler::submit(RequestId id, GenerateRequest request, OutputSink sink, TimePoint now) {
  if (idle()) progress_ = now;
  auto owner = std::make_unique<RequestRecord>();
  RequestRecord& record = *owner;
  record.id = id;
  record.sink = std::move(sink);
  record.open_choices = request.n;
  record.usage.prompt_tokens = static_cast<std::int32_t>(request.prompt.size());
  record.prompt_logprobs_done = request.prompt_logprobs < 0;
  if (request.arrival == TimePoint{}) request.arrival = now;
  request.max_tokens = std::min(request.max_tokens, options_.context - record.usage.prompt_tokens);
  request.sampling.min_tokens = std::min(request.sampling.min_tokens, request.max_tokens);
  request.sampling.stop_ids = request.stop_token_ids;
  if (!request.ignore_eos)
    request.sampling.stop_ids.insert(request.sampling.stop_ids.end(), end_ids_.begin(), end_ids_.end());
  record.request = std::move(request);
  requests_.emplace(id.value, std::move(owner));

  const bool resumed = !record.request.resume.empty();
  for (std::int32_t choice = 0; choice < record.request.n; ++choice) {
    if (resumed && record.request.resume[static_cast<std::size_t>(choice)].finished) {
      record.choices.push_back(nullptr);
      continue;
    }
    auto sequence = std::make_unique<Sequence>();
    sequence->request = &record;
    sequence->arrival = next_arrival_++;
    sequence->choice = static_cast<std::uint32_t>(choice);
    sequence->arrived = record.request.arrival;
    sequence->tokens = record.request.prompt;
    sequence->prompt_tokens = record.usage.prompt_tokens;
    sequence->max_tokens = record.request.max_tokens;
    sequence->key = {options_.fingerprint, "", record.request.cache_salt};
    sequence->stream = std::make_unique<OutputStream>(tokenizer_, record.request.skip_special_tokens,
                                                      record.request.continues_prompt, record.request.stop);
    record.choices.push_back(sequence.get());
    attach_legs(record, *sequence);
    Sequence* raw = sequence.get();
    sequences_.emplace(raw, std::move(sequence));
    if (choice == 0 || resumed) {
      queue(*raw, false);
    } else {
      ++held_back_;
    }
  }
  if (resumed) resume(record, now);
}

void Scheduler::queue(Sequence& sequence, bool at_head) {
  if (sequence.departure != nullptr && !sequence.called) {
    sequence.state = SequenceState::kUncalled;
    uncalled_.push_back(&sequence);
    sequence.departure->await_call();
    return;
  }
  sequence.state = SequenceState::kQueued;
  if (sequence.preempted) {
    // Before all that have not begun, in order of arrival.
    const auto behind = std::ranges::find_if(queue_, [&](const Sequence* other) {
      return !other->preempted || other->arrival > sequence.arrival;
    });
    queue_.insert(behind, &sequence);
  } else if (at_head) {
    queue_.push_front(&sequence);
  } else {
    queue_.push_back(&sequence);
  }
}

// The prompt is in the tree, or the first choice is gone: the others may come. They go to the head of the
// queue, in order, while their prefix is warm.
void Scheduler::release_held_back(RequestRecord& request) {
  for (auto it = request.choices.rbegin(); it != request.choices.rend(); ++it) {
    if (*it == nullptr || (*it)->state != SequenceState::kHeldBack) continue;
    --held_back_;
    queue(**it, true);
  }
}

bool Scheduler::cancel(RequestId id, TimePoint now) {
  const auto it = requests_.find(id.value);
  if (it == requests_.end()) return false;
  ++totals_.requests_cancelled;
  end_request(*it->second, FinishReason::kCancelled, {}, now);
  return true;
}

std::vector<RequestId> Scheduler::request_ids() const {
  std::vector<RequestId> ids;
  for (const auto& [id, request] : requests_) ids.emplace_back(id);
  std::ranges::sort(ids);
  return ids;
}

std::int32_t Scheduler::cancel_all(TimePoint now) {
  const std::vector<RequestId> ids = request_ids();
  for (const RequestId id : ids) cancel(id, now);
  return static_cast<std::int32_t>(ids.size());
}

// Who waits in the queue has lost nothing.
void Scheduler::lose_ranks(const Status& why, TimePoint now) {
  for (const RequestId id : request_ids()) {
    RequestRecord& request = *requests_.at(id.value);
    if (request.admitted) ++request.losses;
    const bool shared = std::ranges::any_of(request.choices, [](const Sequence* sequence) {
      return sequence != nullptr && (sequence->departure != nullptr || sequence->arrival_leg != nullptr);
    });
    if (!request.request.outlives_ranks || shared || request.losses >= kMostLosses) {
      ++totals_.requests_failed;
      end_request(request, FinishReason::kError, why, now);
      continue;
    }
    for (Sequence* sequence : request.choices) {
      if (sequence == nullptr || sequence->state != SequenceState::kRunning) continue;
      sequence->preempted = true;
      sequence->comes_back = policy::Retraction::kRecompute;
      retire(*sequence, SequenceState::kPreempted);
    }
  }
}

void Scheduler::fail_all(const Status& failure, TimePoint now) {
  for (const RequestId id : request_ids()) {
    ++totals_.requests_failed;
    end_request(*requests_.at(id.value), FinishReason::kError, failure, now);
  }
}

PlanNumber Scheduler::begin_epoch() {
  assert(flights_.empty() && running_.empty());
  // They came to its head one by one.
  std::ranges::sort(queue_, {}, &Sequence::arrival);
  free_slots_.insert(free_slots_.end(), to_close_.rbegin(), to_close_.rend());
  to_close_.clear();
  forget_stowed();
  cache_.flush();
  return next_plan_;
}

void Scheduler::end_request(RequestRecord& request, FinishReason reason, Status error, TimePoint now) {
  const RequestId id = request.id;
  const Status why = error.ok() ? Status(ErrorCode::kCancelled, "the request was cancelled") : error;
  // A copy: the record goes with its last choice.
  const std::vector<Sequence*> choices = request.choices;
  for (Sequence* sequence : choices) {
    if (sequence == nullptr) continue;
    OutputEvent event;
    event.choice = static_cast<std::int32_t>(sequence->choice);
    event.finish = reason;
    event.error = error;
    end_choice(*sequence, std::move(event), now, why);
  }
  log(LogLevel::kInfo, "request.ended", "id={} how={}", id.value,
      reason == FinishReason::kCancelled ? "cancelled" : "failed");
}

void Scheduler::end_choice(Sequence& sequence, OutputEvent event, TimePoint now, const Status& why) {
  RequestRecord& request = *sequence.request;
  request.choices[sequence.choice] = nullptr;
  --request.open_choices;
  sequence.request = nullptr;
  const bool first = sequence.choice == 0;
  retire(sequence, SequenceState::kEnded, why);  // the sequence may be gone from here on
  event.last = request.open_choices == 0;
  if (event.last) {
    finish_request(request, event, now);
    return;
  }
  if (first && !request.prompt_done) {
    request.prompt_done = true;
    release_held_back(request);
  }
  // The last one says why all of them have failed; that this one has ended, as if by itself, would be untrue:
  // whoever goes on elsewhere would take it for finished.
  if (event.error.ok()) request.sink(std::move(event));
}

void Scheduler::finish_request(RequestRecord& request, OutputEvent& event, TimePoint now) {
  event.usage = request.usage;
  totals_.histograms.e2e_latency.add(seconds_between(request.request.arrival, now));
  if (event.finish == FinishReason::kStop || event.finish == FinishReason::kLength) {
    ++totals_.requests_finished;
    log(LogLevel::kInfo, "request.done", "id={} rid={} prompt={} cached={} tokens={} ms={:.0f}",
        request.id.value, request.request.rid, request.usage.prompt_tokens, request.usage.cached_tokens,
        request.usage.completion_tokens, 1e3 * seconds_between(request.request.arrival, now));
  }
  // After its last event nothing of the request is left here (R6): first the record, then the event.
  const std::unique_ptr<RequestRecord> owner = std::move(requests_.at(request.id.value));
  requests_.erase(owner->id.value);
  owner->sink(std::move(event));
}

void Scheduler::retire(Sequence& sequence, SequenceState state, const Status& why) {
  if (state == SequenceState::kEnded) close_legs(sequence, why);
  if (sequence.state == SequenceState::kAway) std::erase(away_, &sequence);
  if (sequence.state == SequenceState::kHeldBack) --held_back_;
  if (sequence.state == SequenceState::kUncalled) std::erase(uncalled_, &sequence);
  if (sequence.state == SequenceState::kQueued) std::erase(queue_, &sequence);
  if (sequence.state == SequenceState::kRunning) std::erase(running_, &sequence);
  sequence.state = state;
  if (sequence.in_flight == 0) settle(sequence);
}

// Nothing of a retired sequence is in flight: its pages go back, and with the next plan its slot. `sequence`
// may be gone afterwards.
void Scheduler::settle(Sequence& sequence) {
  if (sequence.state == SequenceState::kEnded) drop_stowed(sequence);
  if (sequence.comes_back == policy::Retraction::kOffload && sequence.state == SequenceState::kPreempted)
    stow(sequence);
  cache_.release(sequence.pages);
  sequence.to_grant.clear();
  sequence.to_release.clear();
  if (sequence.open_on_ranks()) to_close_.push_back(sequence.slot);
  sequence.slot = SequenceSlot(-1);
  sequence.planned = 0;
  sequence.computed = 0;
  if (sequence.state == SequenceState::kPreempted) {
    queue(sequence, true);
  } else {
    sequences_.erase(&sequence);
  }
}

std::optional<TimePoint> Scheduler::waiting_since() const {
  if (idle()) return std::nullopt;
  // Others have the word: their deadlines are the room table's.
  const bool others = !away_.empty() || (!uncalled_.empty() && queue_.empty());
  if (flights_.empty() && running_.empty() && others) return std::nullopt;
  // Of several coordinates the one that has stood longest.
  TimePoint since = progress_;
  for (const Lane& lane : lanes_) {
    if (lane.in_flight > 0) since = std::min(since, lane.progress);
  }
  return since;
}

EngineStats Scheduler::stats(TimePoint now) const {
  EngineStats stats = totals_;
  stats.running = static_cast<std::int32_t>(running_.size() + away_.size());
  stats.waiting = static_cast<std::int32_t>(queue_.size() + uncalled_.size()) + held_back_;
  for (const Sequence* sequence : queue_) stats.uncached_tokens_queued += sequence->remaining();
  for (const Sequence* sequence : uncalled_) stats.uncached_tokens_queued += sequence->remaining();
  for (const Sequence* sequence : running_) {
    if (!sequence->decoding())
      stats.uncached_tokens_queued += std::max<std::int64_t>(sequence->remaining(), 0);
  }
  for (std::int32_t g = 0; g < cache_.groups(); ++g) {
    const kv::PoolCounts counts = cache_.counts(g);
    stats.kv.push_back({counts.capacity, counts.free, counts.cached, counts.held, counts.fenced});
  }
  stats.offloaded_bytes = offloaded_bytes();
  for (const BusyMeter& stage : busy_) stats.stage_busy.push_back(stage.ratio(now));
  return stats;
}

}  // namespace shoal::engine
