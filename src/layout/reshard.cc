#include "layout/reshard.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace shoal {
namespace {

constexpr std::uint64_t kTokensOfAPage = 32;

struct Range {
  std::int32_t begin = 0;
  std::int32_t end = 0;
  bool empty() const { return end <= begin; }
};

Range layers_of(const KvPart& part) { return {part.first_layer, part.first_layer + part.layers}; }
Range heads_of(const KvPart& part) { return {part.first_head, part.first_head + part.heads}; }
Range common(Range a, Range b) { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }

// What of `wanted` no earlier source of these layers has, and this one does: the rest stays in `wanted`.
std::vector<Range> take(std::vector<Range>& wanted, Range held) {
  std::vector<Range> taken;
  std::vector<Range> left;
  for (const Range each : wanted) {
    const Range hit = common(each, held);
    if (hit.empty()) {
      left.push_back(each);
      continue;
    }
    taken.push_back(hit);
    if (const Range before{each.begin, hit.begin}; !before.empty()) left.push_back(before);
    if (const Range after{hit.end, each.end}; !after.empty()) left.push_back(after);
  }
  wanted = std::move(left);
  return taken;
}

// Where any source's layers begin or end inside the target's: between two borders all layers are alike.
std::vector<std::int32_t> layer_borders(const KvParts& sources, std::size_t group, Range target) {
  std::vector<std::int32_t> borders = {target.begin, target.end};
  for (const auto& source : sources) {
    const Range layers = common(layers_of(source[group]), target);
    if (layers.empty()) continue;
    borders.push_back(layers.begin);
    borders.push_back(layers.end);
  }
  std::ranges::sort(borders);
  borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
  return borders;
}

// Slices of layers that one source sends alike become one transfer.
void add(std::vector<KvTransfer>& plan, std::size_t from, const KvTransfer& transfer) {
  for (std::size_t i = from; i < plan.size(); ++i) {
    KvTransfer& other = plan[i];
    const bool continues = other.source == transfer.source && other.group == transfer.group &&
                           other.part.first_head == transfer.part.first_head &&
                           other.part.heads == transfer.part.heads &&
                           other.part.first_layer + other.part.layers == transfer.part.first_layer;
    if (!continues) continue;
    other.part.layers += transfer.part.layers;
    return;
  }
  plan.push_back(transfer);
}

Status add_target(const KvParts& sources, const KvParts& targets, std::size_t target, std::size_t group,
                  std::vector<KvTransfer>& plan) {
  const std::size_t from = plan.size();
  const KvPart& wants = targets[target][group];
  if (wants.layers == 0 || wants.heads == 0) return {};
  const std::vector<std::int32_t> borders = layer_borders(sources, group, layers_of(wants));
  for (std::size_t slice = 0; slice + 1 < borders.size(); ++slice) {
    const Range layers{borders[slice], borders[slice + 1]};
    std::vector<Range> wanted = {heads_of(wants)};
    for (std::size_t source = 0; source < sources.size() && !wanted.empty(); ++source) {
      const KvPart& has = sources[source][group];
      if (common(layers_of(has), layers).empty()) continue;
      for (const Range heads : take(wanted, heads_of(has)))
        add(plan, from,
            {static_cast<std::int32_t>(source),
             static_cast<std::int32_t>(target),
             static_cast<std::int32_t>(group),
             {layers.begin, layers.end - layers.begin, heads.begin, heads.end - heads.begin}});
    }
    if (!wanted.empty())
      return {
          ErrorCode::kInvalidArgument,
          fmt::format("rank {} of the decode worker wants head {} of layer {} of KV group {}, which no rank "
                      "of the prefill worker holds",
                      target, wanted.front().begin, layers.begin, group)};
  }
  return {};
}

}  // namespace

Expected<std::vector<KvTransfer>> reshard(const KvParts& sources, const KvParts& targets) {
  const std::size_t groups = sources.empty() ? 0 : sources.front().size();
  for (const KvParts* side : {&sources, &targets}) {
    for (const auto& rank : *side) {
      if (rank.size() != groups)
        return Status(ErrorCode::kInvalidArgument,
                      fmt::format("ranks hold {} and {} KV groups", groups, rank.size()));
    }
  }
  std::vector<KvTransfer> plan;
  for (std::size_t target = 0; target < targets.size(); ++target) {
    for (std::size_t group = 0; group < groups; ++group)
      SHOAL_TRY(add_target(sources, targets, target, group, plan));
  }
  std::ranges::sort(plan, {}, [](const KvTransfer& each) {
    return std::tuple(each.source, each.target, each.group, each.part.first_head, each.part.first_layer);
  });
  return plan;
}

std::uint64_t handover_bytes(const std::vector<KvTransfer>& plan, const std::vector<std::int64_t>& pages,
                             const std::vector<std::int32_t>& head_dims, std::int32_t element_bytes) {
  std::uint64_t total = 0;
  for (const KvTransfer& each : plan) {
    const auto group = static_cast<std::size_t>(each.group);
    const std::uint64_t cell = 2 * kTokensOfAPage * static_cast<std::uint64_t>(head_dims[group]) *
                               static_cast<std::uint64_t>(element_bytes);
    total += static_cast<std::uint64_t>(pages[group]) * static_cast<std::uint64_t>(each.part.layers) *
             static_cast<std::uint64_t>(each.part.heads) * cell;
  }
  return total;
}

std::vector<PageRun> page_runs(std::int32_t first, const std::vector<std::int32_t>& slots,
                               std::int32_t most) {
  std::vector<PageRun> runs;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const bool goes_on =
        !runs.empty() && runs.back().slot + runs.back().count == slots[i] && runs.back().count < most;
    if (goes_on) {
      ++runs.back().count;
    } else {
      runs.push_back({first + static_cast<std::int32_t>(i), slots[i], 1});
    }
  }
  return runs;
}

}  // namespace shoal
