// What the scheduler does with a step's result: tokens, text, stops, the prefix tree, pages.

#include <fmt/format.h>

#include <algorithm>

#include "core/log.h"
#include "engine/scheduler.h"

namespace shoal::engine {

// The flight that is over. One that no plan in flight fits is the oldest's, and its error.
std::optional<Scheduler::Flight> Scheduler::land(const StepResult& result, TimePoint now) {
  if (flights_.empty()) return std::nullopt;
  auto found = std::ranges::find(flights_, result.number, &Flight::number);
  if (found == flights_.end()) found = flights_.begin();
  Flight flight = std::move(*found);
  flights_.erase(found);
  progress_ = now;
  for (std::size_t c = 0; c < lanes_.size(); ++c) {
    if (!flight.coordinates.has(static_cast<std::int32_t>(c))) continue;
    --lanes_[c].in_flight;
    lanes_[c].progress = now;
  }
  return flight;
}

void Scheduler::apply(StepResult result, TimePoint now) {
  const std::optional<Flight> landed = land(result, now);
  if (!landed) return;
  const Flight& flight = *landed;
  ++totals_.steps;
  std::string error = std::move(result.error);
  if (error.empty() && result.number != flight.number)
    error = fmt::format("the rank answered step plan {} where {} was due", result.number.value,
                        flight.number.value);
  if (result.lost) return lose_flight(flight);
  measure_busy(result, flight, now);
  copy_rate_.observe(static_cast<double>(result.copied_bytes), result.copy_seconds);
  if (!error.empty()) return fail_flight(flight, {ErrorCode::kInternal, std::move(error)}, now);
  observe_step(result, flight);
  take_prompt_logprobs(result, flight);
  // Of each coordinate in the order of its items; those of items that the rank skipped are missing.
  for (const FlightItem& item : flight.items) {
    const SampledToken* sampled = nullptr;
    if (item.sampled) {
      const auto found = std::ranges::find(result.sampled, item.sequence->slot, &SampledToken::sequence);
      if (found != result.sampled.end()) sampled = &*found;
    }
    take_item(item, sampled, now);
  }
}

void Scheduler::measure_busy(const StepResult& result, const Flight& flight, TimePoint now) {
  // A stage is as busy as its coordinates are on the average.
  const double part = static_cast<double>(flight.coordinates.count()) / options_.coordinates;
  for (std::size_t stage = 0; stage < std::min(busy_.size(), result.stage_seconds.size()); ++stage) {
    busy_[stage].add(now, part * result.stage_seconds[stage]);
    totals_.stage_seconds[stage] += part * result.stage_seconds[stage];
  }
}

void Scheduler::observe_step(const StepResult& result, const Flight& flight) {
  if (flight.items.empty()) return;
  const double seconds = step_seconds(result);
  const policy::StepShape& shape = slowest(flight);
  log(LogLevel::kDebug, "step.done",
      "plan={} coordinates={:x} decode={} prefill={} expected_ms={:.1f} high_ms={:.1f} ms={:.1f}",
      flight.number.value, flight.coordinates.bits(), shape.decode_rows, shape.prefill_rows,
      1e3 * cost_.predict(shape), 1e3 * cost_.predict_high(shape), 1e3 * seconds);
  cost_.observe(shape, seconds);
}

double Scheduler::step_seconds(const StepResult& result) const {
  if (result.stage_seconds.empty()) return 0;
  return options_.stages * *std::ranges::max_element(result.stage_seconds);
}

void Scheduler::take_item(const FlightItem& item, const SampledToken* sampled, TimePoint now) {
  Sequence& sequence = *item.sequence;
  --sequence.in_flight;
  if (item.sampled) --sequence.pending;
  sequence.computed = item.end;
  if (sequence.state == SequenceState::kEnded) {
    if (sequence.in_flight == 0) settle(sequence);
    return;
  }
  if (item.sampled && sampled == nullptr) {
    ++totals_.requests_failed;
    end_request(*sequence.request, FinishReason::kError,
                {ErrorCode::kInternal, "the rank sent no token for a sequence that it was to sample"}, now);
    return;
  }
  // G4: what this plan completed may be shared from now on. A sampled token is known only below, so the
  // positions computed are all among the known tokens.
  cache_.insert(sequence.pages,
                std::span(sequence.tokens).first(static_cast<std::size_t>(sequence.computed)));
  cache_.release_behind(sequence.pages, sequence.computed, [&](std::int32_t group, std::int32_t first_kept) {
    sequence.to_release[static_cast<std::size_t>(group)] = first_kept;
  });
  if (sequence.computed >= sequence.prompt_tokens && !on_prompt_computed(sequence, now)) return;
  if (sampled != nullptr && !on_token(sequence, *sampled, now)) return;
  if (sequence.state == SequenceState::kPreempted && sequence.in_flight == 0) settle(sequence);
}

bool Scheduler::on_prompt_computed(Sequence& sequence, TimePoint now) {
  RequestRecord& request = *sequence.request;
  if (sequence.choice == 0 && !request.prompt_done) {
    request.prompt_done = true;
    request.prompt_logprobs_done = true;
    totals_.prompt_tokens += static_cast<std::uint64_t>(request.usage.prompt_tokens);
    totals_.cached_tokens += static_cast<std::uint64_t>(request.usage.cached_tokens);
    release_held_back(request);
  }
  if (sequence.max_tokens > 0) return true;
  OutputEvent event;
  event.choice = static_cast<std::int32_t>(sequence.choice);
  event.finish = FinishReason::kLength;
  event.prompt_logprobs = std::move(request.prompt_logprobs);
  request.prompt_logprobs.clear();
  end_choice(sequence, std::move(event), now);
  return false;
}

// A stop string may not end the answer before min_tokens are out.
void Scheduler::take_token(Sequence& sequence, TokenId id, OutputEvent& event) {
  const GenerateRequest& request = sequence.request->request;
  sequence.tokens.push_back(id);
  const bool may_stop = sequence.output_tokens() >= request.sampling.min_tokens;
  const bool eos = !request.ignore_eos && std::ranges::binary_search(end_ids_, id);
  const bool stop_id = std::ranges::find(request.stop_token_ids, id) != request.stop_token_ids.end();
  std::optional<std::string> stop;
  if (eos || stop_id) {
    event.finish = FinishReason::kStop;
    if (stop_id) event.matched_stop = tokenizer_->piece(id);
  } else {
    stop = sequence.stream->push(id, may_stop, event.text);
    // The request's limit: that of a sequence that departs is one token.
    if (!stop && sequence.output_tokens() >= request.max_tokens) event.finish = FinishReason::kLength;
  }
  if (event.finish) {
    if (auto late = sequence.stream->finish(may_stop, event.text); late && !stop_id) stop = std::move(late);
  }
  if (stop) {
    event.finish = FinishReason::kStop;
    event.matched_stop = *std::move(stop);
  }
}

bool Scheduler::on_token(Sequence& sequence, const SampledToken& sampled, TimePoint now) {
  RequestRecord& request = *sequence.request;
  OutputEvent event;
  event.choice = static_cast<std::int32_t>(sequence.choice);
  event.tokens.push_back({sampled.id, sampled.logprob, sampled.top});
  event.text = std::move(sequence.resumed_text);
  sequence.resumed_text.clear();
  event.prompt_logprobs = std::move(request.prompt_logprobs);
  request.prompt_logprobs.clear();
  take_token(sequence, sampled.id, event);
  ++request.usage.completion_tokens;
  ++totals_.generated_tokens;
  measure_token(sequence, now);
  if (sequence.departure != nullptr) {
    depart(sequence, std::move(event));
    return false;
  }
  if (!event.finish) {
    request.sink(std::move(event));
    return true;
  }
  lengths_.add(sequence.output_tokens());
  end_choice(sequence, std::move(event), now);
  return false;
}

void Scheduler::measure_token(Sequence& sequence, TimePoint now) {
  RequestRecord& request = *sequence.request;
  if (sequence.output_tokens() > sequence.resumed + 1) {
    totals_.histograms.inter_token_latency.add(seconds_between(sequence.last_token, now));
  } else if (!request.first_token_out) {
    request.first_token_out = true;
    totals_.histograms.prefill_time.add(seconds_between(request.admitted_at, now));
    totals_.histograms.time_to_first_token.add(seconds_between(request.request.arrival, now));
  }
  sequence.last_token = now;
}

void Scheduler::take_prompt_logprobs(StepResult& result, const Flight& flight) {
  // Coordinates each send theirs.
  std::ranges::stable_sort(result.prompt_logprobs, {}, &PromptLogprobs::position);
  for (PromptLogprobs& logprobs : result.prompt_logprobs) {
    const auto item = std::ranges::find_if(
        flight.items, [&](const FlightItem& each) { return each.sequence->slot == logprobs.sequence; });
    if (item == flight.items.end() || item->sequence->request == nullptr) continue;
    item->sequence->request->prompt_logprobs.push_back(std::move(logprobs));
  }
}

// What becomes of its requests, lose_ranks() says.
void Scheduler::lose_flight(const Flight& flight) {
  for (const FlightItem& item : flight.items) {
    Sequence& sequence = *item.sequence;
    --sequence.in_flight;
    if (item.sampled) --sequence.pending;
    if (sequence.in_flight == 0 && sequence.state != SequenceState::kRunning) settle(sequence);
  }
}

void Scheduler::fail_flight(const Flight& flight, const Status& failure, TimePoint now) {
  log(LogLevel::kError, "step.failed", "plan={} sequences={} error=\"{}\"", flight.number.value,
      flight.items.size(), failure.message());
  for (const FlightItem& item : flight.items) {
    Sequence& sequence = *item.sequence;
    --sequence.in_flight;
    if (item.sampled) --sequence.pending;
    if (sequence.request != nullptr) {
      ++totals_.requests_failed;
      // The sequence must outlive the call where it has more items here: it has one item a plan.
      end_request(*sequence.request, FinishReason::kError, failure, now);
    } else if (sequence.in_flight == 0) {
      settle(sequence);
    }
  }
}

}  // namespace shoal::engine
