#include "layout/traffic.h"

#include <algorithm>

#include "layout/stages.h"

namespace shoal {
namespace {

constexpr std::int64_t kRowValues = 16;  // 64 bytes

template <typename T>
std::uint64_t list_bytes(const std::vector<T>& list, std::uint64_t element) {
  return 4 + list.size() * element;
}

std::uint64_t encoded_bytes(const SamplingParams& s) {
  return 7 * 4 + list_bytes(s.logit_bias, 8) + 8 + 4 + 4 + list_bytes(s.stop_ids, 4) + 4;
}

// `calls` sums of these rows.
Traffic sums(const TrafficShape& shape, std::int64_t rows, std::uint64_t calls, std::int32_t index) {
  if (rows == 0) return {};
  const std::uint64_t in_memory = row_bytes_moved(rows, shape.hidden);
  if (shape.shared_memory) return {calls, calls * in_memory, calls * in_memory};
  const auto values = static_cast<std::int64_t>(in_memory / sizeof(float));
  const std::uint64_t wire = SumRoute::wire_bytes(values, index, shape.layout.degrees().tp, shape.sum_bytes);
  return {calls, calls * static_cast<std::uint64_t>(values * shape.sum_bytes), calls * wire};
}

Traffic sampling(const TrafficShape& shape, const StepRows& rows, const Coordinate& at) {
  Traffic traffic;
  const Degrees& degrees = shape.layout.degrees();
  if (at.pp + 1 != degrees.pp) return traffic;
  if (at.tp > 0 && rows.sampled > 0) {
    const auto tp = static_cast<std::size_t>(at.tp);
    const bool any = shape.vocabulary_ends[tp] > shape.vocabulary_ends[tp - 1];
    traffic.calls = 1;
    traffic.payload = any ? static_cast<std::uint64_t>(rows.sampled) * (sizeof(TokenId) + sizeof(float)) : 0;
  }
  if (at.tp == 0 && rows.sampled > 0) {
    // Its own stage is the first where there is no other.
    traffic.calls = static_cast<std::uint64_t>(degrees.tp - 1 + (degrees.pp > 1 ? degrees.tp : 0));
    traffic.payload = traffic.calls * static_cast<std::uint64_t>(rows.sampled) * sizeof(TokenId);
  }
  traffic.wire = traffic.payload;
  return traffic;
}

}  // namespace

std::int64_t SumRoute::chunk_begin(std::int64_t values, std::int64_t index, std::int64_t ranks) {
  const std::int64_t lines = (values + kRowValues - 1) / kRowValues;
  return std::min(lines * index / ranks * kRowValues, values);
}

std::uint64_t SumRoute::wire_bytes(std::int64_t values, std::int64_t index, std::int64_t ranks,
                                   std::int64_t width) {
  if (values * width <= kDirectBytes) return static_cast<std::uint64_t>((ranks - 1) * values * width);
  const std::int64_t own = chunk_begin(values, index + 1, ranks) - chunk_begin(values, index, ranks);
  // The others' shares out, then the own share's sums to each.
  return static_cast<std::uint64_t>((values - own + (ranks - 1) * own) * width);
}

StepRows StepRows::of(const SubBatch& batch) {
  StepRows rows;
  for (const WorkItem& item : batch.items) {
    rows.tokens += item.count();
    rows.logits += item.prompt_logprobs >= 0 ? item.count() : (item.sample ? 1 : 0);
    rows.sampled += item.sample ? 1 : 0;
  }
  return rows;
}

std::uint64_t row_bytes_moved(std::int64_t rows, std::int64_t width) {
  if (rows == 0) return 0;
  const std::int64_t stride = (width + kRowValues - 1) / kRowValues * kRowValues;
  return static_cast<std::uint64_t>((rows - 1) * stride + width) * sizeof(float);
}

std::uint64_t encoded_bytes(const StepPlan& plan) {
  std::uint64_t total = 8 + 8 + 8 + 1;  // number, epoch, coordinates, whether the masked is computed
  total += list_bytes(plan.closes, 4);
  total += 4;
  for (const SequenceOpen& open : plan.opens)
    total +=
        4 + encoded_bytes(open.sampling) + list_bytes(open.prompt, 4) + list_bytes(open.output, 4) + 8 + 4;
  total += list_bytes(plan.copies, 12 + 4 + 1);
  total += list_bytes(plan.grants, 4 + 4 + 4 + 12);
  total += list_bytes(plan.releases, 12);
  total += 4;
  for (const SubBatch& batch : plan.sub_batches) {
    total += 4;
    for (const WorkItem& item : batch.items) total += 4 + 4 + list_bytes(item.tokens, 4) + 1 + 4 + 1;
  }
  return total;
}

StepTraffic step_traffic(const TrafficShape& shape, const StepRows& rows, std::int32_t rank) {
  StepTraffic traffic;
  if (rows.tokens == 0) return traffic;
  const Degrees& degrees = shape.layout.degrees();
  const Coordinate at = shape.layout.coordinate(rank);
  const bool last_stage = at.pp + 1 == degrees.pp;
  if (degrees.tp > 1) {
    const LayerRange stage = layers_of_stage(shape.stage_layers, at.pp);
    const auto layers = static_cast<std::uint64_t>(stage.end - stage.begin);
    traffic.tp = sums(shape, rows.tokens, 2 * (last_stage ? layers - 1 : layers), at.tp);
    if (last_stage) traffic.tp += sums(shape, rows.logits, 2, at.tp);
  }
  if (!last_stage) {
    const std::uint64_t bytes = row_bytes_moved(rows.tokens, shape.hidden);
    traffic.pp = {1, bytes, bytes};
  }
  traffic.sample = sampling(shape, rows, at);
  if (!last_stage && at.tp == 0) {
    const std::uint64_t seconds = (static_cast<std::uint64_t>(at.pp) + 1) * sizeof(double);
    traffic.plan = {1, seconds, seconds};
  }
  return traffic;
}

Traffic plan_traffic(const Layout& layout, const StepPlan& plan) {
  const auto others = static_cast<std::uint64_t>(layout.ranks() - 1);
  const std::uint64_t bytes = encoded_bytes(plan);
  return {others, others * bytes, others * bytes};
}

Traffic result_traffic(const Layout& layout, const StepRows& rows, std::int32_t coordinate) {
  if (layout.degrees().pp == 1 && coordinate == 0) return {};
  // number, error, sampled (slot, id, log-probability, an empty list), prompt log-probabilities, stages'
  // seconds, copies' bytes and seconds
  const std::uint64_t bytes =
      8 + 4 + 4 + static_cast<std::uint64_t>(rows.sampled) * 16 + 4 + 4 + 8 + 8 +
      static_cast<std::uint64_t>(rows.tokens > 0 ? layout.degrees().pp : 0) * sizeof(double);
  return {1, bytes, bytes};
}

}  // namespace shoal
