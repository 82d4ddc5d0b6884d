// How the scheduler composes a step plan: closes, admission, decodes, prefill chunks.

#include <algorithm>

#include "engine/scheduler.h"

namespace shoal::engine {
namespace {

// Prompt log-probabilities need a row of logits for each token: the 64 MiB that a plan may use for them are
// 128 rows of the largest vocabularies.
constexpr std::int64_t kPromptLogitBytes = 64 << 20;
// A request whose pages do not fit yet may be passed by smaller ones among the next three, 16 times at most:
// a long one does not hold up all others, nor they it for ever.
constexpr std::size_t kLookAhead = 4;
constexpr std::int32_t kMostPassed = 16;
// A coordinate whose step is long has at most so many plans of others queued behind it, whose changes it
// still has to apply: some 4 KiB each, where they carry prompts.
constexpr std::uint64_t kMostAhead = 256;

// Of a sequence that begins: where it resumes, its output may be cached, too.
std::int32_t cached_prompt_tokens(const Sequence& sequence) {
  return static_cast<std::int32_t>(std::min<std::int64_t>(sequence.planned, sequence.prompt_tokens));
}

}  // namespace

// Coordinates that exchange nothing do not wait for each other: each has plans of its own, and sequences that
// lie with several have plans for all of these (P16).
std::optional<StepPlan> Scheduler::compose(TimePoint now) {
  if (std::ranges::none_of(lanes_,
                           [&](const Lane& lane) { return lane.in_flight < options_.plans_in_flight; }))
    return std::nullopt;
  // Whoever is behind has all of these plans to apply still.
  if (!flights_.empty() && next_plan_.value - flights_.front().number.value >= kMostAhead)
    return std::nullopt;
  retracted_in_plan_ = false;
  do {
    admit(now);
    for (const CoordinateSet party : parties()) {
      if (most_in_flight(party) >= options_.plans_in_flight) continue;
      if (auto plan = compose_for(party, now)) return plan;
    }
  } while (flights_.empty() && break_stand_still(now));

  const CoordinateSet bare = needs_bare_plan();
  if (bare.empty()) return std::nullopt;
  StepPlan plan;
  plan.sub_batches.resize(lanes_.size());
  Flight flight;
  flight.coordinates = bare;
  launch(plan, std::move(flight), now);
  return plan;
}

// Closes and copies alone are worth a plan only where nothing else will come soon to carry them. Closes go
// with any plan, copies with one for their coordinate.
CoordinateSet Scheduler::needs_bare_plan() const {
  if (flights_.empty() && (!to_close_.empty() || !copies_.empty())) return all_coordinates();
  CoordinateSet idle;
  for (const PageCopy& copy : copies_) {
    const std::int32_t owner = cache_.owner(copy.page);
    if (lanes_[static_cast<std::size_t>(owner)].in_flight == 0) idle.add(owner);
  }
  return idle;
}

// Of the sequences that lie with these coordinates, and no others.
std::optional<StepPlan> Scheduler::compose_for(CoordinateSet party, TimePoint now) {
  StepPlan plan;
  plan.sub_batches.resize(lanes_.size());
  plan.compute_masked = options_.partition == ContextPartition::kMasked;
  Flight flight;
  flight.coordinates = party;
  flight.shapes.resize(lanes_.size());
  add_decodes(plan, flight);
  add_prefills(plan, flight, now);
  if (flight.items.empty()) return std::nullopt;
  launch(plan, std::move(flight), now);
  return plan;
}

void Scheduler::launch(StepPlan& plan, Flight flight, TimePoint now) {
  plan.number = flight.number = next_plan_;
  plan.coordinates = flight.coordinates;
  ++next_plan_.value;
  take_closes(plan);
  take_copies(plan);
  for (std::size_t c = 0; c < lanes_.size(); ++c) {
    if (!flight.coordinates.has(static_cast<std::int32_t>(c))) continue;
    Lane& lane = lanes_[c];
    if (lane.in_flight++ == 0) lane.progress = now;
    ++lane.composed;
  }
  flights_.push_back(std::move(flight));
}

// P4: the slots closed here are given out from the next plan on.
void Scheduler::take_closes(StepPlan& plan) {
  free_slots_.insert(free_slots_.end(), to_close_.rbegin(), to_close_.rend());
  plan.closes = std::move(to_close_);
  to_close_.clear();
}

// Pages of the group that a sequence is expected to hold at its longest.
std::int64_t Scheduler::expected_pages(const Sequence& sequence, const KvGroup& group) const {
  const std::int64_t length =
      std::int64_t{sequence.prompt_tokens} + lengths_.expect(sequence.output_tokens(), sequence.max_tokens);
  const std::int64_t pages = kv::pages_for(std::max<std::int64_t>(length, std::ssize(sequence.tokens)));
  if (group.window <= 0) return pages;
  // A window's worth, a page at either end of it, and a chunk being computed.
  return std::min<std::int64_t>(pages,
                                kv::pages_for(group.window) + 2 + options_.batch.max_rows / kPageTokens);
}

// Of each pool: what is available, and what the running sequences are still expected to take.
std::vector<policy::PoolDemand> Scheduler::promised_demand() const {
  std::vector<policy::PoolDemand> demand(static_cast<std::size_t>(cache_.groups()));
  for (std::int32_t g = 0; g < cache_.groups(); ++g) {
    policy::PoolDemand& pool = demand[static_cast<std::size_t>(g)];
    pool.available = cache_.available(g);
    for (const Sequence* sequence : running_) {
      const std::int64_t held = sequence->pages.tables[static_cast<std::size_t>(g)].held();
      pool.promised += std::max<std::int64_t>(0, expected_pages(*sequence, cache_.group(g)) - held);
    }
    for (const Sequence* sequence : away_) {
      if (sequence->arrival_leg == nullptr) continue;
      const std::int64_t held = sequence->pages.tables[static_cast<std::size_t>(g)].held();
      pool.promised += std::max<std::int64_t>(0, expected_pages(*sequence, cache_.group(g)) - held);
    }
  }
  return demand;
}

// Pages that a match may cover: one token is always left to compute (G5). Whoever wants the prompt's
// log-probabilities computes it all.
std::int32_t Scheduler::cacheable_pages(const Sequence& sequence) const {
  if (scores_prompt(sequence)) return 0;
  // Its logits come with the first token.
  if (sequence.arrival_leg != nullptr) return sequence.prompt_tokens / kPageTokens;
  return static_cast<std::int32_t>((sequence.tokens.size() - 1) / kPageTokens);
}

void Scheduler::admit(TimePoint now) {
  if (queue_.empty() || admitted_sequences() >= options_.max_sequences) return;
  std::vector<policy::PoolDemand> demand = promised_demand();
  for (std::size_t at = 0; at < std::min(queue_.size(), kLookAhead);) {
    Sequence& sequence = *queue_[at];
    if (admitted_sequences() >= options_.max_sequences) return;
    if (!try_admit(sequence, demand) || (sequence.arrival_leg != nullptr && !reserve_arrival(sequence)) ||
        (sequence.stowed && !bring_back(sequence))) {
      // One that gave way, or was passed often enough, is passed no more.
      if (sequence.preempted || sequence.passed >= kMostPassed) return;
      ++at;
      continue;
    }
    for (std::size_t i = 0; i < at; ++i) ++queue_[i]->passed;
    queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(at));
    start(sequence, now);
  }
}

void Scheduler::start(Sequence& sequence, TimePoint now) {
  if (sequence.state != SequenceState::kAway) {
    sequence.state = SequenceState::kRunning;
    running_.insert(std::ranges::upper_bound(running_, sequence.arrival, {}, &Sequence::arrival), &sequence);
    if (!sequence.pages.open()) match_prefix(sequence);
  }
  choose_lanes(sequence);
  RequestRecord& request = *sequence.request;
  if (request.admitted) return;
  request.admitted = true;
  request.admitted_at = now;
  request.usage.cached_tokens = cached_prompt_tokens(sequence);
  totals_.histograms.queue_time.add(seconds_between(sequence.arrived, now));
}

bool Scheduler::try_admit(Sequence& sequence, std::vector<policy::PoolDemand>& demand) {
  const kv::KvCache::Peek peek = cache_.peek(sequence.key, sequence.tokens, cacheable_pages(sequence));
  for (std::size_t g = 0; g < demand.size(); ++g) {
    const KvGroup& group = cache_.group(static_cast<std::int32_t>(g));
    demand[g].needed = std::max<std::int64_t>(
        0, expected_pages(sequence, group) - (group.window > 0 ? peek.cached[g] : peek.pages));
    demand[g].available -= peek.cached[g];
  }
  const bool admitted =
      policy::admits({static_cast<std::int32_t>(admitted_sequences()), options_.max_sequences, demand});
  for (std::size_t g = 0; g < demand.size(); ++g) {
    if (admitted) demand[g].promised += demand[g].needed;
    if (!admitted) demand[g].available += peek.cached[g];
  }
  return admitted;
}

void Scheduler::match_prefix(Sequence& sequence) {
  sequence.to_grant.clear();
  const std::int32_t pages = cache_.open(sequence.pages, sequence.key, sequence.tokens,
                                         cacheable_pages(sequence), sequence.to_grant);
  sequence.planned = sequence.computed = std::int64_t{pages} * kPageTokens;
  sequence.tree_version = cache_.tree_version();
  sequence.to_release.assign(static_cast<std::size_t>(cache_.groups()), -1);
  // Whoever lost its pages in the middle of its prompt starts over.
  if (sequence.choice == 0) sequence.request->prompt_logprobs.clear();
}

// Whoever has not begun looks again: meanwhile an equal prompt may have been computed by someone else.
void Scheduler::rematch_prefix(Sequence& sequence) {
  if (sequence.open_on_ranks() || sequence.tree_version == cache_.tree_version()) return;
  sequence.tree_version = cache_.tree_version();
  const std::int32_t pages = cache_.peek(sequence.key, sequence.tokens, cacheable_pages(sequence)).pages;
  if (std::int64_t{pages} * kPageTokens <= sequence.planned) return;
  cache_.release(sequence.pages);
  match_prefix(sequence);
  RequestRecord& request = *sequence.request;
  if (sequence.choice == 0 && !sequence.preempted)
    request.usage.cached_tokens = cached_prompt_tokens(sequence);
}

// With several stages a plan with all sequences would wait, at the first stage, for the ids of the one before
// it. So they are dealt to as many plans as there are stages: a sequence is in one of so many plans in a
// row, and has its id when its turn comes. Fewer sequences than stages come round faster, unless prompts fill
// the plans between.
Scheduler::DecodeTurn Scheduler::decode_turn(CoordinateSet party) const {
  std::int64_t decoding = 0;
  bool prompts = false;
  for (const Sequence* sequence : running_) {
    if (!party.meets(sequence->touches)) continue;
    decoding += wants_decode(*sequence) ? 1 : 0;
    prompts |= !sequence->decoding() && sequence->remaining() > 0;
  }
  const std::int64_t apart =
      prompts ? options_.stages : std::clamp<std::int64_t>(decoding, 1, options_.stages);
  return {static_cast<std::uint64_t>(apart), (decoding + apart - 1) / apart};
}

void Scheduler::add_decodes(StepPlan& plan, Flight& flight) {
  const CoordinateSet party = flight.coordinates;
  DecodeTurn turn = decode_turn(party);
  // A copy: who gives way leaves the list.
  const std::vector<Sequence*> running = running_;
  for (Sequence* each : running) {
    Sequence& sequence = *each;
    if (sequence.state != SequenceState::kRunning || !wants_decode(sequence) || !has_slot(sequence)) continue;
    if (!party.includes(sequence.touches)) continue;
    const std::uint64_t next = lanes_[static_cast<std::size_t>(sequence.home)].composed + 1;
    const bool in_turn =
        sequence.in_flight == 0 || (sequence.in_flight < 2 && next - sequence.last_plan >= turn.plans_apart);
    if (!in_turn || turn.most == 0) continue;
    bool room = grow_for_decode(sequence, party).ok();
    if (!room && !finds_room_beside(party) && retract_one())
      room = sequence.state == SequenceState::kRunning && grow_for_decode(sequence, party).ok();
    if (!room) continue;
    flight.shapes[static_cast<std::size_t>(sequence.home)].add_decode(sequence.planned + 1);
    add_item(plan, flight, sequence, 0);
    --turn.most;
  }
}

bool Scheduler::finds_room_beside(CoordinateSet party) const {
  for (std::int32_t c = 0; c < options_.coordinates; ++c) {
    if (!party.has(c) && cache_.room(c) > 0) return true;
  }
  return false;
}

void Scheduler::add_prefills(StepPlan& plan, Flight& flight, TimePoint now) {
  const CoordinateSet party = flight.coordinates;
  std::int64_t scores_left = std::max<std::int64_t>(1, kPromptLogitBytes / 4 / options_.vocabulary);
  candidates_.clear();
  candidate_sequences_.clear();
  for (Sequence* sequence : running_) {
    if (sequence->decoding() || sequence->remaining() <= 0 || !has_slot(*sequence)) continue;
    if (!party.includes(sequence->touches)) continue;
    policy::PrefillCandidate candidate;
    candidate.context = sequence->planned;
    candidate.remaining = sequence->remaining();
    candidate.limit = cache_.reach(sequence->pages, party) - sequence->planned;
    if (scores_prompt(*sequence)) candidate.limit = std::min(candidate.limit, scores_left);
    candidate.waited = seconds_between(sequence->arrived, now);
    candidate.lanes = sequence->lanes;
    candidates_.push_back(candidate);
    candidate_sequences_.push_back(sequence);
  }
  if (candidates_.empty()) return;
  policy::BatchLimits limits = options_.batch;
  limits.stages = options_.stages;
  // Streams whose turn comes with the plans behind this one wait for it all the same.
  limits.streams =
      std::ranges::any_of(flight.shapes, [](const auto& shape) { return shape.decode_rows > 0; }) ||
      (options_.stages > 1 && std::ranges::any_of(running_, [&](const Sequence* sequence) {
         return party.meets(sequence->touches) && wants_decode(*sequence);
       }));
  for (const policy::PrefillShare& share : policy::share_prefill(cost_, flight.shapes, candidates_, limits)) {
    Sequence& sequence = *candidate_sequences_[share.candidate];
    // Others have grown, and used the plan's logits, since the limits were taken.
    std::int64_t count = std::min(share.tokens, cache_.reach(sequence.pages, party) - sequence.planned);
    const bool scores = scores_prompt(sequence);
    if (scores) count = std::min(count, scores_left);
    if (count <= 0 || !has_slot(sequence) || !grow_for_prefill(sequence, count, party).ok()) continue;
    if (scores) scores_left -= count;
    add_item(plan, flight, sequence, count);
  }
}

// count 0: the token sampled last.
void Scheduler::add_item(StepPlan& plan, Flight& flight, Sequence& sequence, std::int64_t count) {
  if (!sequence.open_on_ranks()) open_on_ranks(plan, sequence);
  for (const kv::NewPage& page : sequence.to_grant)
    plan.grants.push_back({sequence.slot, cache_.group(page.group).id, page.logical, page.page});
  sequence.to_grant.clear();
  for (std::size_t g = 0; g < sequence.to_release.size(); ++g) {
    if (sequence.to_release[g] < 0) continue;
    plan.releases.push_back(
        {sequence.slot, cache_.group(static_cast<std::int32_t>(g)).id, sequence.to_release[g]});
    sequence.to_release[g] = -1;
  }
  WorkItem item;
  item.sequence = sequence.slot;
  item.start = static_cast<std::int32_t>(sequence.planned);
  if (count > 0) {
    const auto begin = sequence.tokens.begin() + static_cast<std::ptrdiff_t>(sequence.planned);
    item.tokens.assign(begin, begin + static_cast<std::ptrdiff_t>(count));
    if (scores_prompt(sequence)) item.prompt_logprobs = sequence.request->request.prompt_logprobs;
  }
  sequence.planned += item.count();
  item.sample = count == 0 || (sequence.remaining() == 0 && sequence.output_tokens() < sequence.max_tokens);
  if (item.sample) ++sequence.pending;
  ++sequence.in_flight;
  flight.items.push_back({&sequence, sequence.planned, item.sample});
  if (count > 0) {
    add_prefill_items(plan, flight, sequence, std::move(item));
  } else {
    plan.sub_batches[static_cast<std::size_t>(sequence.home)].items.push_back(std::move(item));
  }
  sequence.last_plan = lanes_[static_cast<std::size_t>(sequence.home)].composed + 1;
}

void Scheduler::open_on_ranks(StepPlan& plan, Sequence& sequence) {
  sequence.slot = free_slots_.back();
  free_slots_.pop_back();
  SequenceOpen open;
  open.sequence = sequence.slot;
  open.sampling = sequence.request->request.sampling;
  open.sampling.choice = sequence.choice;
  const auto output = sequence.tokens.begin() + sequence.prompt_tokens;
  if (open.sampling.needs_history() || sequence.request->request.prompt_logprobs >= 0)
    open.prompt.assign(sequence.tokens.begin(), output);
  open.output.assign(output, sequence.tokens.end());
  if (sequence.departure != nullptr) {
    open.room = static_cast<std::int64_t>(sequence.departure->room());
    open.room_tokens = sequence.prompt_tokens;
  }
  plan.opens.push_back(std::move(open));
}

// Nothing is in flight and nothing could be composed. With several running, all of them wait for pages that
// the others hold: one gives way. Returns whether composing again may help.
bool Scheduler::break_stand_still(TimePoint now) {
  if (running_.empty()) return false;
  // Only the table's slots are short: a plan that closes gives them back.
  if (free_slots_.empty() && !to_close_.empty()) return false;
  retracted_in_plan_ = false;
  if (running_.size() > 1 && retract_one()) return true;
  // Whoever is away holds pages, and gives them back or goes on by a deadline.
  if (!away_.empty()) return false;
  if (running_.size() > 1) {
    const bool all_depart = std::ranges::all_of(
        running_, [](const Sequence* sequence) { return sequence->departure != nullptr; });
    if (!all_depart) return false;
    end_request(*running_.back()->request, FinishReason::kError,
                {ErrorCode::kExhausted, "the KV pool cannot hold this prompt beside the others"}, now);
    ++totals_.requests_failed;
    return true;
  }
  // Alone, a sequence always finds pages, for the context is no larger than the pool. Should it not, its
  // request ends with a sentence instead of waiting for ever.
  Sequence& sequence = *running_.front();
  const bool fresh = !sequence.open_on_ranks();
  // One that departs never gives way.
  if (!fresh && sequence.departure == nullptr) return retract_one();
  end_request(*sequence.request, FinishReason::kError,
              {ErrorCode::kExhausted, "the KV pool cannot hold this request even alone"}, now);
  ++totals_.requests_failed;
  return true;
}

}  // namespace shoal::engine
