#include "layout/context_traffic.h"

#include <algorithm>

namespace shoal {
namespace {

// Of one layer.
struct LayerBytes {
  std::uint64_t page = 0;
  std::uint64_t query = 0;
  std::uint64_t result = 0;
  std::uint64_t token = 0;
};

void add(Traffic& traffic, std::uint64_t bytes) {
  if (bytes > 0) traffic += {1, bytes, bytes};
}

void add_exchanges(const ContextMoves& moves, const LayerBytes& bytes, Traffic& traffic) {
  for (const ContextExchange& with : moves.exchanges()) {
    add(traffic, with.pages_out.size() * bytes.page);
    add(traffic, static_cast<std::uint64_t>(with.query_rows_out) * bytes.query);
    add(traffic, static_cast<std::uint64_t>(with.state_rows_out) * bytes.result);
  }
}

void add_tokens(const ContextWork& work, std::int32_t own, const LayerBytes& bytes, Traffic& traffic) {
  std::vector<std::uint64_t> tokens(work.size());
  for (const ContextSpan& span : work[static_cast<std::size_t>(own)]) {
    each_foreign_token(span, own, [&](std::int32_t, std::int32_t, std::int32_t owner, std::int32_t) {
      ++tokens[static_cast<std::size_t>(owner)];
    });
  }
  for (const std::uint64_t count : tokens) add(traffic, count * bytes.token);
}

}  // namespace

void ContextTables::apply(const StepPlan& plan) {
  for (const SequenceOpen& open : plan.opens) {
    const auto slot = static_cast<std::size_t>(open.sequence.value);
    if (sequences_.size() <= slot) sequences_.resize(slot + 1);
    sequences_[slot].assign(groups_, {});
  }
  for (const PageGrant& grant : plan.grants) {
    Table& table = sequences_[static_cast<std::size_t>(grant.sequence.value)]
                             [static_cast<std::size_t>(grant.group.value)];
    const auto page = static_cast<std::size_t>(grant.logical_page);
    if (table.slots.size() <= page) {
      table.slots.resize(page + 1, -1);
      table.owners.resize(page + 1, -1);
    }
    table.slots[page] = grant.page.slot;
    table.owners[page] = grant.page.pool / static_cast<std::int32_t>(groups_);
  }
  for (const PageRelease& release : plan.releases) {
    Table& table = sequences_[static_cast<std::size_t>(release.sequence.value)]
                             [static_cast<std::size_t>(release.group.value)];
    for (std::size_t page = 0;
         page < table.slots.size() && page < static_cast<std::size_t>(release.first_kept); ++page)
      table.slots[page] = table.owners[page] = -1;
  }
}

ContextWork ContextTables::work(const StepPlan& plan, std::int32_t group) const {
  ContextWork work(plan.sub_batches.size());
  for (std::size_t c = 0; c < work.size(); ++c) {
    std::int32_t rows = 0;
    for (const WorkItem& item : plan.sub_batches[c].items) {
      const Table& table =
          sequences_[static_cast<std::size_t>(item.sequence.value)][static_cast<std::size_t>(group)];
      ContextSpan span;
      span.first_row = rows;
      span.rows = item.count();
      span.start = item.start;
      span.pass_queries = item.pass_queries;
      span.decodes = item.tokens.empty();
      span.slots = table.slots;
      span.owners = table.owners;
      work[c].push_back(span);
      rows += item.count();
    }
  }
  return work;
}

ContextWork ContextTables::sampled_work(const StepPlan& plan, std::int32_t group) const {
  ContextWork all = work(plan, group);
  for (std::size_t c = 0; c < all.size(); ++c) {
    std::vector<ContextSpan> sampled;
    for (std::size_t i = 0; i < all[c].size(); ++i) {
      if (!plan.sub_batches[c].items[i].sample) continue;
      ContextSpan span = all[c][i];
      span.first_row += span.rows - 1;
      span.start += span.rows - 1;
      span.rows = 1;
      span.pass_queries = true;
      sampled.push_back(span);
    }
    all[c] = std::move(sampled);
  }
  return all;
}

ContextStepTraffic context_traffic(const ContextShape& shape, const ContextTables& tables,
                                   const StepPlan& plan) {
  ContextStepTraffic traffic;
  const std::int64_t head = shape.head_dim;
  LayerBytes bytes;
  bytes.page = static_cast<std::uint64_t>(2 * kPageTokens * shape.kv_heads * head * shape.kv_value_bytes);
  bytes.query = static_cast<std::uint64_t>(shape.query_heads * head) * sizeof(float);
  bytes.token = static_cast<std::uint64_t>(2 * shape.kv_heads * head) * sizeof(float);
  for (std::size_t i = 0; i < shape.layer_groups.size(); ++i) {
    const std::int32_t group = shape.layer_groups[i];
    const std::int32_t window = shape.groups[static_cast<std::size_t>(group)].window;
    const bool pieces = shape.strict || window > 0;
    bytes.result = static_cast<std::uint64_t>(shape.query_heads * (head + (pieces ? 2 : 1))) * sizeof(float);
    const ContextWork all = tables.work(plan, group);
    add_tokens(all, shape.coordinate, bytes, traffic.merge);
    const bool last = shape.last_stage && i + 1 == shape.layer_groups.size();
    const ContextWork attended = last ? tables.sampled_work(plan, group) : all;
    ContextMoves moves;
    moves.make(attended, ContextTraffic::kRing, shape.coordinate, window, pieces);
    add_exchanges(moves, bytes, traffic.ring);
    moves.make(attended, ContextTraffic::kMerge, shape.coordinate, window, pieces);
    add_exchanges(moves, bytes, traffic.merge);
  }
  return traffic;
}

}  // namespace shoal
