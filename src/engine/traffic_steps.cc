#include "engine/traffic_steps.h"

#include <algorithm>

#include "core/ids.h"
#include "kernels/sampling_math.h"
#include "tensor/kv_layout.h"

namespace shoal::engine {

std::int64_t TrafficSteps::pages_each() const {
  const std::int64_t tokens = std::int64_t{options_.prompt} + options_.generate;
  return (tokens + kPageTokens - 1) / kPageTokens;
}

StepPlan TrafficSteps::next_plan() {
  StepPlan plan;
  plan.number = PlanNumber(++number_);
  plan.sub_batches.resize(1);
  return plan;
}

void TrafficSteps::grant(StepPlan& plan, std::int32_t sequence, std::int32_t first, std::int32_t last) const {
  // A page begins with the position that is its first.
  const auto begin = static_cast<std::int32_t>((first + kPageTokens - 1) / kPageTokens);
  const auto end = static_cast<std::int32_t>((last + kPageTokens - 1) / kPageTokens);
  for (std::int32_t group = 0; group < options_.groups; ++group) {
    for (std::int32_t page = begin; page < end; ++page) {
      const auto slot = static_cast<std::int32_t>(sequence * pages_each() + page);
      plan.grants.push_back({SequenceSlot(sequence), KvGroupId(group), page, {group, slot, 1}});
    }
  }
}

std::vector<StepPlan> TrafficSteps::prefill() {
  std::vector<StepPlan> plans;
  for (std::int32_t sequence = 0; sequence < options_.sequences; ++sequence) {
    for (std::int32_t begin = 0; begin < options_.prompt; begin += options_.chunk) {
      const std::int32_t end = std::min(begin + options_.chunk, options_.prompt);
      StepPlan plan = next_plan();
      if (begin == 0) {
        SequenceOpen open;
        open.sequence = SequenceSlot(sequence);
        open.sampling.temperature = 0;
        plan.opens.push_back(std::move(open));
      }
      grant(plan, sequence, begin, end);
      WorkItem item;
      item.sequence = SequenceSlot(sequence);
      item.start = begin;
      item.sample = end == options_.prompt;
      for (std::int32_t i = begin; i < end; ++i) {
        const std::uint64_t bits =
            kernels::noise_bits(1, 0, static_cast<std::uint64_t>(i), static_cast<TokenId>(sequence));
        item.tokens.push_back(static_cast<TokenId>(bits % static_cast<std::uint64_t>(options_.vocabulary)));
      }
      plan.sub_batches.front().items.push_back(std::move(item));
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
      grant(plan, sequence, position, position + 1);
      WorkItem item;
      item.sequence = SequenceSlot(sequence);
      item.start = position;
      item.sample = true;
      plan.sub_batches.front().items.push_back(std::move(item));
    }
    plans.push_back(std::move(plan));
  }
  return plans;
}

}  // namespace shoal::engine
