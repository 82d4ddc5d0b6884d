// What the scheduler does when pages are short: which sequence gives way, what is kept of it in the ranks'
// offload buffers, and how that comes back (policy/retraction.h says which and how).
//
// Copies are written down in the order in which they must be done and go out with the next plan for their
// coordinate, which does them before anything else: so a page may be given to another sequence as soon as its
// copy is written down, and a place as soon as it has been read.

#include <algorithm>
#include <utility>

#include "core/log.h"
#include "engine/scheduler.h"

namespace shoal::engine {

bool Scheduler::retract_one() {
  if (retracted_in_plan_) return false;
  std::vector<policy::RetractionCandidate> candidates;
  std::vector<Sequence*> who;
  for (const auto& [raw, owner] : sequences_) {
    const bool leaving = raw->state == SequenceState::kPreempted || raw->state == SequenceState::kEnded;
    if (!leaving && raw->state != SequenceState::kRunning) continue;
    // Its pages are being read, and admission has counted all that it will ever need.
    if (!leaving && raw->departure != nullptr) continue;
    candidates.push_back(retraction_candidate(*raw));
    candidates.back().leaving = leaving;
    who.push_back(raw);
  }
  const auto chosen = policy::choose_retracted(candidates);
  if (!chosen) return false;
  Sequence& sequence = *who[*chosen];
  const policy::ReturnSeconds seconds = return_seconds(sequence);
  sequence.comes_back = policy::choose_return(seconds, options_.retract);
  retracted_in_plan_ = true;
  ++totals_.preemptions;
  ++totals_.retractions[policy::retraction_index(sequence.comes_back)];
  log(LogLevel::kInfo, "sequence.preempted",
      "id={} choice={} tokens={} running={} by={} offload_ms={:.1f} recompute_ms={:.1f}",
      sequence.request->id.value, sequence.choice, sequence.tokens.size(), running_.size(),
      policy::retraction_name(sequence.comes_back), 1e3 * seconds.offload.value_or(-1e-3),
      1e3 * seconds.recompute);
  sequence.preempted = true;
  retire(sequence, SequenceState::kPreempted);
  return true;
}

policy::RetractionCandidate Scheduler::retraction_candidate(const Sequence& sequence) const {
  policy::RetractionCandidate candidate;
  candidate.arrival = sequence.arrival;
  for (const kv::PageTable& table : sequence.pages.tables) {
    candidate.pages_held += table.held();
    for (std::int32_t page = table.first_kept(); page < table.size(); ++page)
      candidate.pages_won += cache_.shared(table.page(page)) ? 0 : 1;
  }
  if (candidate.pages_held == 0 || sequence.state != SequenceState::kRunning) return candidate;
  candidate.steps_left = steps_left(sequence);
  const policy::ReturnSeconds seconds = return_seconds(sequence);
  candidate.return_seconds = policy::choose_return(seconds, options_.retract) == policy::Retraction::kOffload
                                 ? *seconds.offload
                                 : seconds.recompute;
  return candidate;
}

double Scheduler::steps_left(const Sequence& sequence) const {
  const std::int32_t output = sequence.output_tokens() + sequence.pending;
  const std::int64_t prompt = std::max<std::int64_t>(0, sequence.prompt_tokens - sequence.planned);
  return std::max(1, lengths_.expect(output, sequence.max_tokens) - output) +
         static_cast<double>(prompt) / options_.batch.max_rows;
}

// Pages at its begin that others hold, too, stay with them.
std::int32_t Scheduler::first_own_page(const Sequence& sequence) const {
  std::int32_t first = kv::pages_for(sequence.planned);
  for (const kv::PageTable& table : sequence.pages.tables) {
    std::int32_t page = table.first_kept();
    while (page < std::min(first, table.size()) && cache_.shared(table.page(page))) ++page;
    first = std::min(first, page);
  }
  return first;
}

std::vector<std::int32_t> Scheduler::pages_to_stow(const Sequence& sequence) const {
  std::vector<std::int32_t> needed(static_cast<std::size_t>(cache_.groups() * cache_.coordinates()));
  const std::int32_t first = first_own_page(sequence);
  for (const kv::PageTable& table : sequence.pages.tables) {
    const std::int32_t end = std::min(table.size(), kv::pages_for(sequence.planned));
    for (std::int32_t page = std::max(first, table.first_kept()); page < end; ++page)
      ++needed[static_cast<std::size_t>(table.page(page).pool)];
  }
  return needed;
}

// Whoever wants its prompt's log-probabilities starts its prompt over.
policy::ReturnSeconds Scheduler::return_seconds(const Sequence& sequence) const {
  policy::ReturnSeconds seconds;
  seconds.recompute = policy::recompute_seconds(cost_, std::int64_t{first_own_page(sequence)} * kPageTokens,
                                                sequence.planned, options_.batch.max_rows);
  const std::vector<std::int32_t> needed = pages_to_stow(sequence);
  const bool any = std::ranges::any_of(needed, [](std::int32_t pages) { return pages > 0; });
  if (!any || !offload_.has_room(needed) || scores_prompt(sequence)) return seconds;
  // Coordinates copy side by side.
  std::int64_t most = 0;
  for (std::int32_t c = 0; c < cache_.coordinates(); ++c) {
    std::int64_t bytes = 0;
    for (std::int32_t g = 0; g < cache_.groups(); ++g)
      bytes += needed[static_cast<std::size_t>(c * cache_.groups() + g)] *
               options_.offload.page_bytes[static_cast<std::size_t>(g)];
    most = std::max(most, bytes);
  }
  seconds.offload = copy_rate_.round_trip_seconds(most);
  return seconds;
}

// It gave way and nothing of it is in flight: what it has computed goes to host memory.
void Scheduler::stow(Sequence& sequence) {
  kv::StowedPages stowed;
  stowed.computed = sequence.computed;
  stowed.first = first_own_page(sequence);
  const std::size_t before = copies_.size();
  for (std::int32_t g = 0; g < cache_.groups(); ++g) {
    const kv::PageTable& table = sequence.pages.tables[static_cast<std::size_t>(g)];
    const std::int32_t end = std::min(table.size(), kv::pages_for(stowed.computed));
    for (std::int32_t page = std::max(stowed.first, table.first_kept()); page < end; ++page) {
      if (!offload_.take(g, page, table.page(page), stowed)) {
        // There was room when it was chosen, and nobody has taken any since; should it be short all the same,
        // it is computed again.
        copies_.resize(before);
        offload_.release(stowed);
        return;
      }
      copies_.push_back({table.page(page), stowed.pages.back().place.slot, true});
    }
  }
  sequence.stowed = std::move(stowed);
}

void Scheduler::drop_stowed(Sequence& sequence) {
  if (sequence.stowed) offload_.release(*sequence.stowed);
  sequence.stowed.reset();
}

// A sequence that is to be admitted gets pages for what is kept of it, on the coordinates where it is kept;
// what the cache still has is taken from there. Takes nothing and says false where they are short. Where what
// it shared with others is gone, or all of it is cached, nothing is kept any more and it starts like any
// other.
bool Scheduler::bring_back(Sequence& sequence) {
  const kv::StowedPages& stowed = *sequence.stowed;
  sequence.to_grant.clear();
  const std::int32_t cached = cache_.open(sequence.pages, sequence.key, sequence.tokens,
                                          cacheable_pages(sequence), sequence.to_grant);
  const auto give_up = [&] {
    cache_.release(sequence.pages);
    sequence.to_grant.clear();
  };
  const std::int32_t end = kv::pages_for(stowed.computed);
  if (cached < stowed.first || std::int64_t{cached} * kPageTokens >= stowed.computed) {
    give_up();
    drop_stowed(sequence);
    return true;
  }
  // A page of a window group may be missing; where it lies all groups agree.
  std::vector<std::int32_t> owners(static_cast<std::size_t>(end - cached), sequence.home);
  for (const kv::StowedPage& page : stowed.pages) {
    if (page.logical >= cached)
      owners[static_cast<std::size_t>(page.logical - cached)] = cache_.owner(page.place);
  }
  for (std::int32_t c = 0; c < cache_.coordinates(); ++c) {
    if (cache_.room(c) < std::ranges::count(owners, c)) {
      give_up();
      return false;
    }
  }
  if (!cache_.reserve(sequence.pages, stowed.computed, sequence.to_grant, owners).ok()) {
    give_up();
    return false;
  }
  for (const kv::StowedPage& page : stowed.pages) {
    const kv::PageTable& table = sequence.pages.tables[static_cast<std::size_t>(page.group)];
    if (page.logical >= cached) copies_.push_back({table.page(page.logical), page.place.slot, false});
  }
  sequence.planned = sequence.computed = stowed.computed;
  sequence.tree_version = cache_.tree_version();
  sequence.to_release.assign(static_cast<std::size_t>(cache_.groups()), -1);
  drop_stowed(sequence);
  return true;
}

// Those on the coordinates that answer the plan: an answer says that they are done. Whatever else uses their
// pages and places goes out with plans for the same coordinates.
void Scheduler::take_copies(StepPlan& plan) {
  std::vector<PageCopy> others;
  for (const PageCopy& copy : std::exchange(copies_, {}))
    (plan.is_for(cache_.owner(copy.page)) ? plan.copies : others).push_back(copy);
  copies_ = std::move(others);
  if (!plan.copies.empty()) last_copies_ = plan.number;
}

// The ranks' buffers hold nothing of use any more.
void Scheduler::forget_stowed() {
  for (const auto& [raw, owner] : sequences_) raw->stowed.reset();
  copies_.clear();
  offload_.clear();
}

std::int64_t Scheduler::offloaded_bytes() const {
  std::int64_t bytes = 0;
  for (std::int32_t pool = 0; pool < cache_.groups() * cache_.coordinates(); ++pool) {
    const std::int32_t kept = offload_.kept(pool);
    if (kept > 0)
      bytes += kept * options_.offload.page_bytes_all[static_cast<std::size_t>(pool % cache_.groups())];
  }
  return bytes;
}

}  // namespace shoal::engine
