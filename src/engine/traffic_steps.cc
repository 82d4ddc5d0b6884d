#include "engine/traffic_steps.h"

#include <algorithm>

#include "core/ids.h"
#include "kernels/sampling_math.h"
#include "tensor/kv_layout.h"

namespace shoal::engine {
namespace {

std::int32_t pages_of(std::int32_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

}  // namespace

TrafficSteps::TrafficSteps(Options options)
    : options_(options),
      owners_(static_cast<std::size_t>(options.sequences)),
      homes_(owners_.size()),
      next_slot_(static_cast<std::size_t>(options.coordinates)) {}

std::int64_t TrafficSteps::pages_each() const {
  const std::int64_t tokens = std::int64_t{options_.prompt} + options_.generate;
  return (tokens + kPageTokens - 1) / kPageTokens;
}

StepPlan TrafficSteps::next_plan() {
  StepPlan plan;
  plan.number = PlanNumber(++number_);
  plan.sub_batches.resize(static_cast<std::size_t>(options_.coordinates));
  plan.compute_masked = options_.partition == ContextPartition::kMasked;
  return plan;
}

void TrafficSteps::grant(StepPlan& plan, std::int32_t sequence, const std::vector<std::int32_t>& owners) {
  std::vector<std::int32_t>& have = owners_[static_cast<std::size_t>(sequence)];
  for (const std::int32_t owner : owners) {
    const std::int32_t slot = next_slot_[static_cast<std::size_t>(owner)]++;
    for (std::int32_t group = 0; group < options_.groups; ++group)
      plan.grants.push_back({SequenceSlot(sequence),
                             KvGroupId(group),
                             static_cast<std::int32_t>(have.size()),
                             {owner * options_.groups + group, slot, 1}});
    have.push_back(owner);
  }
}

// Tokens [begin, end), each run of them with the owner of its pages.
void TrafficSteps::add_prompt(StepPlan& plan, std::int32_t sequence, std::int32_t begin, std::int32_t end) {
  const std::vector<std::int32_t>& owners = owners_[static_cast<std::size_t>(sequence)];
  while (begin < end) {
    std::int32_t page = begin / kPageTokens;
    const std::int32_t owner = owners[static_cast<std::size_t>(page)];
    while (page + 1 < pages_of(end) && owners[static_cast<std::size_t>(page) + 1] == owner) ++page;
    const std::int32_t stop = std::min(end, (page + 1) * kPageTokens);
    WorkItem item;
    item.sequence = SequenceSlot(sequence);
    item.start = begin;
    item.sample = stop == options_.prompt;
    item.pass_queries = options_.pass_queries;
    for (std::int32_t i = begin; i < stop; ++i) {
      const std::uint64_t bits =
          kernels::noise_bits(1, 0, static_cast<std::uint64_t>(i), static_cast<TokenId>(sequence));
      item.tokens.push_back(static_cast<TokenId>(bits % static_cast<std::uint64_t>(options_.vocabulary)));
    }
    if (item.sample) homes_[static_cast<std::size_t>(sequence)] = owner;
    plan.sub_batches[static_cast<std::size_t>(owner)].items.push_back(std::move(item));
    begin = stop;
  }
}

std::vector<StepPlan> TrafficSteps::prefill() {
  std::vector<StepPlan> plans;
  for (std::int32_t sequence = 0; sequence < options_.sequences; ++sequence) {
    const ContextLanes lanes{sequence % options_.coordinates, options_.coordinates, options_.coordinates};
    for (std::int32_t begin = 0; begin < options_.prompt; begin += options_.chunk) {
      const std::int32_t end = std::min(begin + options_.chunk, options_.prompt);
      StepPlan plan = next_plan();
      if (begin == 0) {
        SequenceOpen open;
        open.sequence = SequenceSlot(sequence);
        open.sampling.temperature = 0;
        plan.opens.push_back(std::move(open));
      }
      const auto have = static_cast<std::int32_t>(owners(sequence).size());
      grant(plan, sequence, deal_pages(options_.partition, lanes, have, pages_of(end) - have));
      add_prompt(plan, sequence, begin, end);
      plans.push_back(std::move(plan));
    }
  }
  return plans;
}

std::vector<StepPlan> TrafficSteps::decode() {
  std::vector<StepPlan> plans;
  for (std::int32_t step = 0; step < options_.generate; ++step) {
    StepPlan plan = next_plan();
    const std::int32_t position = options_.prompt + step;
    for (std::int32_t sequence = 0; sequence < options_.sequences; ++sequence) {
      const std::vector<std::int32_t>& have = owners(sequence);
      if (static_cast<std::size_t>(position / kPageTokens) == have.size()) {
        const bool begins = have.size() % kSegmentPages == 0;
        grant(plan, sequence, {begins ? (have.back() + 1) % options_.coordinates : have.back()});
      }
      WorkItem item;
      item.sequence = SequenceSlot(sequence);
      item.start = position;
      item.sample = true;
      plan.sub_batches[static_cast<std::size_t>(homes_[static_cast<std::size_t>(sequence)])].items.push_back(
          std::move(item));
    }
    plans.push_back(std::move(plan));
  }
  return plans;
}

std::vector<StepPlan> TrafficSteps::decode_only() {
  StepPlan begin;
  for (std::int32_t sequence = 0; sequence < options_.sequences; ++sequence) {
    const ContextLanes lanes{sequence % options_.coordinates, options_.coordinates, options_.coordinates};
    homes_[static_cast<std::size_t>(sequence)] = lanes.first;
    SequenceOpen open;
    open.sequence = SequenceSlot(sequence);
    open.sampling.temperature = 0;
    open.output = {1};
    begin.opens.push_back(std::move(open));
    grant(begin, sequence, deal_pages(options_.partition, lanes, 0, pages_of(options_.prompt)));
  }
  std::vector<StepPlan> plans = decode();
  StepPlan& first = plans.front();
  first.opens = std::move(begin.opens);
  first.grants.insert(first.grants.begin(), begin.grants.begin(), begin.grants.end());
  return plans;
}

}  // namespace shoal::engine
