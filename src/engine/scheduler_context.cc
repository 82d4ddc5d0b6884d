// Where sequences lie when there are several coordinates: who computes a prompt, who owns its pages, what
// travels. With one coordinate all of it is coordinate 0.

#include <algorithm>
#include <bit>

#include "engine/scheduler.h"
#include "layout/context_moves.h"
#include "policy/context_degree.h"

namespace shoal::engine {
namespace {

// A decoded token weighs as much as so many of a prompt, in choosing who has least to do.
constexpr double kDecodeWeight = 16;

}  // namespace

CoordinateSet Scheduler::holders(const Sequence& sequence) const {
  CoordinateSet holders;
  for (const kv::PageTable& table : sequence.pages.tables) {
    for (std::int32_t page = table.first_kept(); page < table.size(); ++page)
      holders.add(cache_.owner(table.page(page)));
  }
  return holders;
}

// Where what the sequence's next work reads and writes lies: its pages, the new ones, and who computes it.
CoordinateSet Scheduler::touched_by(const Sequence& sequence) const {
  if (options_.coordinates == 1) return all_coordinates();
  CoordinateSet touched = holders(sequence);
  touched.add(sequence.home);
  if (sequence.decoding()) {
    if (kv::pages_for(sequence.planned + 1) > sequence.pages.tables.front().size())
      touched.add(new_page_owner(sequence));
    return touched;
  }
  std::int64_t room = 0;
  for (std::int32_t lane = 0; lane < sequence.lanes.degree; ++lane) {
    touched.add(sequence.lanes.at(lane));
    room += cache_.room(sequence.lanes.at(lane));
  }
  // Its pages may come to lie anywhere.
  const std::int64_t pages =
      kv::pages_for(sequence.planned + sequence.remaining()) - sequence.pages.tables.front().size();
  return pages > room ? all_coordinates() : touched;
}

// The coordinates, parted as far as no sequence that waits for work lies with several parts; those with
// fewest plans in flight first. Has them look for their prefixes again.
std::vector<CoordinateSet> Scheduler::parties() {
  std::vector<CoordinateSet> parties;
  for (std::int32_t c = 0; c < options_.coordinates; ++c) parties.push_back(CoordinateSet::of(c));
  for (Sequence* sequence : running_) {
    const bool prompt = !sequence->decoding() && sequence->remaining() > 0;
    if (prompt && has_slot(*sequence)) rematch_prefix(*sequence);
    sequence->touches = touched_by(*sequence);
    if (!prompt && !wants_decode(*sequence)) continue;
    CoordinateSet joined = sequence->touches;
    std::erase_if(parties, [&](CoordinateSet party) {
      const bool meets = party.meets(sequence->touches);
      if (meets) joined.add(party);
      return meets;
    });
    parties.push_back(joined);
  }
  std::ranges::stable_sort(parties, {}, [&](CoordinateSet party) { return most_in_flight(party); });
  return parties;
}

std::int32_t Scheduler::most_in_flight(CoordinateSet party) const {
  std::int32_t most = 0;
  for (std::size_t c = 0; c < lanes_.size(); ++c) {
    if (party.has(static_cast<std::int32_t>(c))) most = std::max(most, lanes_[c].in_flight);
  }
  return most;
}

// Tokens of prompts that each coordinate has still to compute, decoded ones counted, too.
std::vector<double> Scheduler::prefill_load(const Sequence& except) const {
  std::vector<double> load(static_cast<std::size_t>(options_.coordinates));
  for (const Sequence* sequence : running_) {
    if (sequence == &except) continue;
    if (sequence->decoding()) {
      load[static_cast<std::size_t>(sequence->home)] += kDecodeWeight;
      continue;
    }
    const ContextLanes& lanes = sequence->lanes;
    for (std::int32_t lane = 0; lane < lanes.degree; ++lane)
      load[static_cast<std::size_t>(lanes.at(lane))] +=
          static_cast<double>(sequence->remaining()) / lanes.degree;
  }
  return load;
}

// Its cached prefix is known. A short prompt goes where least is to be done, rather to where its prefix lies;
// the first of several coordinates samples a prompt dealt zig-zag.
void Scheduler::choose_lanes(Sequence& sequence) {
  sequence.lanes = {0, 1, options_.coordinates};
  sequence.home = 0;
  if (options_.coordinates == 1) return;
  std::vector<double> load = prefill_load(sequence);
  const kv::PageTable& table = sequence.pages.tables.front();
  for (std::int32_t page = table.first_kept(); page < table.size(); ++page)
    load[static_cast<std::size_t>(cache_.owner(table.page(page)))] -= kPageTokens / 4.0;
  auto first = static_cast<std::int32_t>(std::ranges::min_element(load) - load.begin());
  // Whose prompt comes from another worker, or whose pages come back, to one coordinate decodes there.
  if (const CoordinateSet held = holders(sequence);
      (sequence.state == SequenceState::kAway || sequence.decoding()) && held.count() == 1)
    first = std::countr_zero(held.bits());
  policy::DegreeInput input;
  input.tokens = sequence.remaining();
  input.room = std::int64_t{cache_.room(first)} * kPageTokens;
  input.coordinates = options_.coordinates;
  input.forced = options_.cp_force;
  sequence.lanes.first = sequence.home = first;
  sequence.lanes.degree = policy::choose_degree(input);
}

// New segments go where most pages are free; a segment that has begun stays together, and so does a short
// sequence: spread over several coordinates it would make them wait for each other at each of its tokens.
std::int32_t Scheduler::decode_owner(const Sequence& sequence) const {
  if (options_.coordinates == 1) return 0;
  const kv::PageTable& table = sequence.pages.tables.front();
  const std::int32_t size = table.size();
  if (size % kSegmentPages != 0 && table.has(size - 1)) return cache_.owner(table.page(size - 1));
  const bool stays = sequence.planned < policy::kSharedPrompt && cache_.room(sequence.home) > 0;
  if (stays && CoordinateSet::of(sequence.home).includes(holders(sequence))) return sequence.home;
  std::int32_t best = sequence.home;
  for (std::int32_t c = 0; c < options_.coordinates; ++c) {
    if (cache_.room(c) > cache_.room(best)) best = c;
  }
  return best;
}

// Who really gets it, as KvCache::grow() settles it.
std::int32_t Scheduler::new_page_owner(const Sequence& sequence) const {
  const std::int32_t owner = decode_owner(sequence);
  if (cache_.room(owner) > 0) return owner;
  std::int32_t best = 0;
  for (std::int32_t c = 1; c < options_.coordinates; ++c) {
    if (cache_.room(c) > cache_.room(best)) best = c;
  }
  return best;
}

// Of the pages that a prompt computed elsewhere still needs: a short one's all in one place, else whole
// segments, each where most pages are free.
std::vector<std::int32_t> Scheduler::arrival_owners(const Sequence& sequence) const {
  const kv::PageTable& table = sequence.pages.tables.front();
  std::vector<std::int32_t> rooms;
  for (std::int32_t c = 0; c < options_.coordinates; ++c) rooms.push_back(cache_.room(c));
  const CoordinateSet held = holders(sequence);
  const auto one = static_cast<std::int32_t>(held.empty() ? std::ranges::max_element(rooms) - rooms.begin()
                                                          : std::countr_zero(held.bits()));
  const std::int32_t pages = kv::pages_for(sequence.prompt_tokens) - table.size();
  if (sequence.prompt_tokens < policy::kSharedPrompt && held.count() <= 1 && pages >= 0 &&
      rooms[static_cast<std::size_t>(one)] >= pages)
    return std::vector<std::int32_t>(static_cast<std::size_t>(pages), one);
  std::vector<std::int32_t> owners;
  std::int32_t owner = decode_owner(sequence);
  for (std::int32_t page = table.size(); page < kv::pages_for(sequence.prompt_tokens); ++page) {
    if (page % kSegmentPages == 0)
      owner = static_cast<std::int32_t>(std::ranges::max_element(rooms) - rooms.begin());
    --rooms[static_cast<std::size_t>(owner)];
    owners.push_back(owner);
  }
  return owners;
}

Status Scheduler::grow_for_decode(Sequence& sequence, CoordinateSet party) {
  const std::int32_t owner = decode_owner(sequence);
  return cache_.grow(sequence.pages, sequence.planned + 1, sequence.to_grant, std::span(&owner, 1), party);
}

Status Scheduler::grow_for_prefill(Sequence& sequence, std::int64_t count, CoordinateSet party) {
  const std::int32_t first = sequence.pages.tables.front().size();
  const std::int32_t pages = kv::pages_for(sequence.planned + count) - first;
  if (pages <= 0) return {};
  const std::vector<std::int32_t> owners = deal_pages(options_.partition, sequence.lanes, first, pages);
  return cache_.grow(sequence.pages, sequence.planned + count, sequence.to_grant, owners, party);
}

// Each run of tokens goes to the owner of its pages; the last one is sampled there, and there the sequence is
// at home.
void Scheduler::add_prefill_items(StepPlan& plan, Flight& flight, Sequence& sequence, WorkItem whole) {
  const kv::PageTable& table = sequence.pages.tables.front();
  std::vector<std::vector<WorkItem>> items(plan.sub_batches.size());
  std::int32_t taken = 0;
  while (taken < whole.count()) {
    std::int32_t page = (whole.start + taken) / kPageTokens;
    const std::int32_t owner = cache_.owner(table.page(page));
    while (page + 1 < table.size() && cache_.owner(table.page(page + 1)) == owner) ++page;
    const std::int32_t end = std::min(whole.count(), (page + 1) * kPageTokens - whole.start);
    WorkItem item;
    item.sequence = whole.sequence;
    item.start = whole.start + taken;
    item.tokens.assign(whole.tokens.begin() + taken, whole.tokens.begin() + end);
    item.sample = whole.sample && end == whole.count();
    item.prompt_logprobs = whole.prompt_logprobs;
    flight.shapes[static_cast<std::size_t>(owner)].add_prefill(item.start, end - taken);
    if (end == whole.count()) sequence.home = owner;
    items[static_cast<std::size_t>(owner)].push_back(std::move(item));
    taken = end;
  }
  for (std::size_t c = 0; c < items.size(); ++c) {
    if (items[c].empty()) continue;
    const bool pass = passes_queries(sequence, static_cast<std::int32_t>(c), items[c]);
    for (WorkItem& item : items[c]) {
      item.pass_queries = pass;
      plan.sub_batches[c].items.push_back(std::move(item));
    }
  }
}

// Whether this coordinate's queries travel, or the pages that they see: whichever is fewer bytes.
bool Scheduler::passes_queries(const Sequence& sequence, std::int32_t coordinate,
                               std::span<const WorkItem> items) const {
  if (options_.coordinates == 1) return false;
  const kv::PageTable& table = sequence.pages.tables.front();
  policy::PassingInput input;
  input.page_bytes = options_.context_bytes.page;
  input.query_bytes = options_.context_bytes.query;
  input.result_bytes = options_.context_bytes.result;
  for (const WorkItem& item : items) input.rows += item.count();
  const WorkItem& last = items.back();
  const std::int32_t seen = (last.start + last.count() - 1) / kPageTokens + 1;
  std::vector<char> owns(static_cast<std::size_t>(options_.coordinates));
  for (std::int32_t page = table.first_kept(); page < seen; ++page) {
    const std::int32_t owner = cache_.owner(table.page(page));
    if (owner == coordinate) continue;
    ++input.pages;
    owns[static_cast<std::size_t>(owner)] = 1;
  }
  input.owners = std::ranges::count(owns, 1);
  // In strict mode one for each segment at least.
  input.results =
      options_.context_bytes.strict ? (input.pages + kSegmentPages - 1) / kSegmentPages : input.owners;
  return policy::passes_queries(input);
}

const policy::StepShape& Scheduler::slowest(const Flight& flight) const {
  return *std::ranges::max_element(flight.shapes, {},
                                   [&](const policy::StepShape& shape) { return cost_.predict(shape); });
}

}  // namespace shoal::engine
