// What the scheduler does with sequences whose prompt and answer are two workers' (handover_leg.h).
//
// A sequence that departs is queued once the worker that goes on has called, which has its pages by then:
// with few pages on both sides, prefill would else hold them for answers that decode has no room for while
// decode held its own for prompts that prefill has none for, and both stood still. So prefill waits for
// decode's pages, and decode's away sequences for prefill's work alone. It is prefilled like any other, with
// one token to sample; then it is away until its pages are taken, holding them. One that arrives is away from
// its admission on, with pages for its whole prompt, and goes on like one that gave way once its first token
// is there.

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "core/log.h"
#include "engine/scheduler.h"

namespace shoal::engine {

void Scheduler::attach_legs(RequestRecord& record, Sequence& sequence) {
  const GenerateRequest& request = record.request;
  if (sequence.choice < request.departures.size()) {
    sequence.departure = request.departures[sequence.choice];
    sequence.departure->attach(record.id, static_cast<std::int32_t>(sequence.choice));
    sequence.max_tokens = std::min(sequence.max_tokens, 1);
  }
  if (sequence.choice < request.arrivals.size()) {
    sequence.arrival_leg = request.arrivals[sequence.choice];
    sequence.arrival_leg->attach(record.id, static_cast<std::int32_t>(sequence.choice));
  }
}

void Scheduler::close_legs(Sequence& sequence, const Status& why) {
  if (sequence.departure != nullptr) sequence.departure->close(why);
  if (sequence.arrival_leg != nullptr) sequence.arrival_leg->close(why);
  sequence.departure.reset();
  sequence.arrival_leg.reset();
}

Sequence* Scheduler::find_choice(RequestId id, std::int32_t choice) const {
  const auto it = requests_.find(id.value);
  if (it == requests_.end() || choice < 0 || choice >= std::ssize(it->second->choices)) return nullptr;
  return it->second->choices[static_cast<std::size_t>(choice)];
}

// The first token is out: from now on the sequence waits for its pages to be taken. `event` is the token's.
void Scheduler::depart(Sequence& sequence, OutputEvent&& event) {
  RequestRecord& request = *sequence.request;
  assert(sequence.in_flight == 0);
  FirstToken first;
  first.token = event.tokens.front();
  first.cached_tokens = request.usage.cached_tokens;
  first.finished = event.finish.has_value();
  sequence.departs_with = event.finish.value_or(FinishReason::kLength);
  sequence.matched_stop = std::move(event.matched_stop);
  event.matched_stop.clear();
  event.finish.reset();
  std::erase(running_, &sequence);
  sequence.state = SequenceState::kAway;
  away_.push_back(&sequence);
  if (sequence.open_on_ranks()) to_close_.push_back(sequence.slot);
  sequence.slot = SequenceSlot(-1);
  sequence.departure->commit(std::move(first));
  request.sink(std::move(event));
}

// Holds pages for the whole prompt; takes nothing and says false where they are short.
bool Scheduler::reserve_arrival(Sequence& sequence) {
  // Another worker fills its pages without waiting for plans.
  if (copies_are_due()) return false;
  sequence.to_grant.clear();
  const std::int32_t cached = cache_.open(sequence.pages, sequence.key, sequence.tokens,
                                          cacheable_pages(sequence), sequence.to_grant);
  // One token alone needs no KV.
  if (sequence.max_tokens > 1 &&
      !cache_.reserve(sequence.pages, sequence.prompt_tokens, sequence.to_grant, arrival_owners(sequence))
           .ok()) {
    cache_.release(sequence.pages);
    sequence.to_grant.clear();
    return false;
  }
  sequence.to_release.assign(static_cast<std::size_t>(cache_.groups()), -1);
  std::vector<kv::NewPage> lacking;
  for (const kv::NewPage& page : sequence.to_grant) {
    if (page.logical >= cached) lacking.push_back(page);
  }
  sequence.state = SequenceState::kAway;
  away_.push_back(&sequence);
  sequence.arrival_leg->open(sequence.tokens, lacking);
  return true;
}

void Scheduler::handover_called(RequestId id, std::int32_t choice, TimePoint now) {
  Sequence* sequence = find_choice(id, choice);
  if (sequence == nullptr || sequence->departure == nullptr) return;
  sequence->called = true;
  if (sequence->state != SequenceState::kUncalled) return;
  progress_ = now;
  std::erase(uncalled_, sequence);
  queue(*sequence, false);
}

void Scheduler::arrived(RequestId id, std::int32_t choice, FirstToken first, TimePoint now) {
  Sequence* found = find_choice(id, choice);
  if (found == nullptr || found->state != SequenceState::kAway || found->arrival_leg == nullptr) return;
  Sequence& sequence = *found;
  RequestRecord& request = *sequence.request;
  progress_ = now;
  sequence.arrival_leg.reset();
  if (choice == 0) request.usage.cached_tokens = first.cached_tokens;
  std::erase(away_, &sequence);
  sequence.state = SequenceState::kRunning;
  running_.insert(std::ranges::upper_bound(running_, sequence.arrival, {}, &Sequence::arrival), &sequence);
  sequence.planned = sequence.computed = sequence.prompt_tokens;
  if (!first.finished && sequence.max_tokens > 1) cache_.insert(sequence.pages, sequence.tokens);
  if (!on_prompt_computed(sequence, now)) return;
  SampledToken sampled;
  sampled.id = first.token.id;
  sampled.logprob = first.token.logprob;
  sampled.top = std::move(first.token.top);
  if (!on_token(sequence, sampled, now) || !first.finished) return;
  ++totals_.requests_failed;
  end_request(request, FinishReason::kError,
              {ErrorCode::kInvalidArgument,
               "the answer ended with its first token on the prefill worker and not here: both legs need the "
               "same request"},
              now);
}

void Scheduler::handover_ended(RequestId id, std::int32_t choice, const Status& status, TimePoint now) {
  Sequence* sequence = find_choice(id, choice);
  if (sequence == nullptr || (sequence->departure == nullptr && sequence->arrival_leg == nullptr)) return;
  progress_ = now;
  if (!status.ok()) {
    const bool cancelled = status.code() == ErrorCode::kCancelled;
    ++(cancelled ? totals_.requests_cancelled : totals_.requests_failed);
    // Whoever drew the room is told that it is the room's affair, not its client's.
    Status why(status.code(), status.message(), status.field().empty() ? "bootstrap_room" : status.field());
    end_request(*sequence->request, cancelled ? FinishReason::kCancelled : FinishReason::kError,
                std::move(why), now);
    return;
  }
  if (sequence->state != SequenceState::kAway || sequence->departure == nullptr) return;
  sequence->departure.reset();
  OutputEvent event;
  event.choice = choice;
  event.finish = sequence->departs_with;
  event.matched_stop = std::move(sequence->matched_stop);
  end_choice(*sequence, std::move(event), now);
}

}  // namespace shoal::engine
