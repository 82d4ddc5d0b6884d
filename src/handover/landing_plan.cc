#include "handover/landing_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "comm/socket.h"
#include "layout/reshard.h"

namespace shoal::handover {
namespace {

constexpr std::size_t kMostRanks = 4096;
constexpr std::int32_t kMost = 1 << 20;  // layers, heads

Status check(const engine::KvPools& decode, const wire::Accept& prefill) {
  const auto fits = [](std::int32_t value) { return value >= 0 && value <= kMost; };
  if (prefill.ranks.empty() || prefill.ranks.size() > kMostRanks)
    return {ErrorCode::kCorrupt, "the prefill worker names no ranks, or more than any has"};
  for (const wire::SourceRank& rank : prefill.ranks) {
    if (rank.parts.size() != decode.groups.size() || !fits(rank.coordinate))
      return {ErrorCode::kCorrupt, "the prefill worker's ranks hold other KV groups than the model has"};
    for (const KvPart& part : rank.parts) {
      if (!fits(part.first_layer) || !fits(part.layers) || !fits(part.first_head) || !fits(part.heads))
        return {ErrorCode::kCorrupt, "the prefill worker's ranks hold what no rank can"};
    }
  }
  return {};
}

// Pages of each coordinate of the decode worker.
std::vector<std::vector<wire::RoomPage>> pages_by_coordinate(const engine::KvPools& decode,
                                                             std::span<const kv::NewPage> lacking) {
  const auto groups = static_cast<std::int32_t>(decode.groups.size());
  std::vector<std::vector<wire::RoomPage>> pages(static_cast<std::size_t>(decode.layout.sub_batches()));
  for (const kv::NewPage& page : lacking)
    pages[static_cast<std::size_t>(page.page.pool / groups)].push_back(
        {page.group, page.logical, page.page.slot, page.page.generation});
  for (auto& each : pages)
    std::ranges::sort(each, {},
                      [](const wire::RoomPage& page) { return std::pair(page.group, page.logical); });
  return pages;
}

}  // namespace

Expected<std::vector<wire::RankWord>> landing_plan(const engine::KvPools& decode,
                                                   std::span<const kv::NewPage> lacking,
                                                   const wire::Accept& prefill,
                                                   const std::string& prefill_host) {
  SHOAL_TRY(check(decode, prefill));
  const auto pages = pages_by_coordinate(decode, lacking);
  std::vector<wire::RankWord> words(decode.parts.size());
  std::vector<bool> lands(words.size());
  for (std::size_t rank = 0; rank < words.size(); ++rank) {
    wire::RankWord& word = words[rank];
    word.kind = wire::RankWord::Kind::kLand;
    word.pages =
        pages[static_cast<std::size_t>(decode.layout.coordinate(static_cast<std::int32_t>(rank)).cp)];
    lands[rank] = std::ranges::any_of(word.pages, [&](const wire::RoomPage& page) {
      const KvPart& part = decode.parts[rank][static_cast<std::size_t>(page.group)];
      return part.layers > 0 && part.heads > 0;
    });
  }
  // A page has one owner among the prefill worker's coordinates, which only they know: every one is asked.
  std::map<std::int32_t, std::vector<std::size_t>> coordinates;
  for (std::size_t rank = 0; rank < prefill.ranks.size(); ++rank)
    coordinates[prefill.ranks[rank].coordinate].push_back(rank);
  for (const auto& [coordinate, ranks] : coordinates) {
    KvParts sources;
    for (const std::size_t rank : ranks) sources.push_back(prefill.ranks[rank].parts);
    SHOAL_ASSIGN(plan, reshard(sources, decode.parts));
    for (const KvTransfer& transfer : plan) {
      const auto target = static_cast<std::size_t>(transfer.target);
      if (!lands[target]) continue;
      const wire::SourceRank& source = prefill.ranks[ranks[static_cast<std::size_t>(transfer.source)]];
      const std::string endpoint =
          source.endpoint.starts_with(':')
              ? (prefill_host.find(':') == std::string::npos ? prefill_host : "[" + prefill_host + "]") +
                    source.endpoint
              : source.endpoint;
      auto& of_target = words[target].sources;
      // By source: what one rank sends to one target follows each other.
      auto at = std::ranges::find(of_target, endpoint, &wire::RankWord::Source::endpoint);
      if (at == of_target.end()) at = of_target.insert(at, {endpoint, {}});
      at->parts.push_back({transfer.group, transfer.part});
    }
  }
  return words;
}

}  // namespace shoal::handover
