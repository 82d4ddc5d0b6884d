#include "kv/kv_cache.h"

#include <fmt/format.h>

#include <algorithm>

namespace shoal::kv {
namespace {

std::vector<PagePool> make_pools(std::span<const std::int32_t> capacities, std::int32_t coordinates) {
  std::vector<PagePool> pools;
  for (std::int32_t c = 0; c < coordinates; ++c) {
    for (const std::int32_t capacity : capacities)
      pools.emplace_back(static_cast<std::int32_t>(pools.size()), capacity);
  }
  return pools;
}

}  // namespace

KvCache::KvCache(std::vector<KvGroup> groups, std::span<const std::int32_t> capacities,
                 std::int32_t coordinates)
    : groups_(std::move(groups)),
      pools_(make_pools(capacities, coordinates)),
      tree_(groups_, pools_),
      page_scratch_(groups_.size(), kNoPage) {}

PoolCounts KvCache::counts(std::int32_t group, std::int32_t coordinate) const {
  const PagePool& at = pools_[pool(group, coordinate)];
  return {at.capacity(), at.free(), at.cached(), at.held(), at.fenced()};
}

PoolCounts KvCache::counts(std::int32_t group) const {
  PoolCounts all;
  for (std::int32_t c = 0; c < coordinates(); ++c) {
    const PoolCounts one = counts(group, c);
    all.capacity += one.capacity;
    all.free += one.free;
    all.cached += one.cached;
    all.held += one.held;
    all.fenced += one.fenced;
  }
  return all;
}

std::int32_t KvCache::available(std::int32_t g, std::int32_t coordinate) const {
  const PagePool& at = pools_[pool(g, coordinate)];
  // A window group's pages are given up one by one wherever they lie; elsewhere only unlocked leaves go.
  return at.free() + (group(g).window > 0 ? at.cached()
                                          : tree_.evictable(static_cast<std::int32_t>(pool(g, coordinate))));
}

std::int32_t KvCache::available(std::int32_t g) const {
  std::int32_t all = 0;
  for (std::int32_t c = 0; c < coordinates(); ++c) all += available(g, c);
  return all;
}

std::int32_t KvCache::room(std::int32_t coordinate) const {
  std::int32_t least = available(0, coordinate);
  for (std::int32_t g = 1; g < groups(); ++g) least = std::min(least, available(g, coordinate));
  return least;
}

std::vector<std::int32_t> KvCache::rooms(CoordinateSet among) const {
  std::vector<std::int32_t> rooms;
  for (std::int32_t c = 0; c < coordinates(); ++c)
    rooms.push_back(among.empty() || among.has(c) ? room(c) : 0);
  return rooms;
}

KvCache::Peek KvCache::peek(const PrefixKey& key, std::span<const TokenId> tokens,
                            std::int32_t max_pages) const {
  Peek peek;
  peek.cached.assign(groups_.size(), 0);
  const PrefixTree::Match match = tree_.match(key, tokens, max_pages);
  peek.pages = match.pages;
  std::int32_t logical = match.pages;
  for (const PrefixTree::Node* node = match.node; logical-- > 0; node = PrefixTree::parent(node)) {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (logical < first_visible_page(std::int64_t{match.pages} * kPageTokens, groups_[g].window)) continue;
      const PageId page = PrefixTree::page(node, static_cast<std::int32_t>(g));
      if (pools_[static_cast<std::size_t>(page.pool)].state(page.slot) == PageState::kCached)
        ++peek.cached[g];
    }
  }
  return peek;
}

std::int32_t KvCache::open(SequencePages& sequence, const PrefixKey& key, std::span<const TokenId> tokens,
                           std::int32_t max_pages, std::vector<NewPage>& taken) {
  const PrefixTree::Match match = tree_.match(key, tokens, max_pages);
  sequence.tables.assign(groups_.size(), {});
  sequence.place = match.node != nullptr ? tree_.lock(match.node) : tree_.lock_root(key);
  sequence.inserted = match.pages;
  std::vector<const PrefixTree::Node*> path(static_cast<std::size_t>(match.pages));
  const PrefixTree::Node* node = match.node;
  for (auto at = path.rbegin(); at != path.rend(); ++at, node = PrefixTree::parent(node)) *at = node;
  for (std::int32_t g = 0; g < groups(); ++g) {
    PageTable& table = sequence.tables[static_cast<std::size_t>(g)];
    table.start_at(first_visible_page(std::int64_t{match.pages} * kPageTokens, group(g).window));
    for (std::int32_t logical = table.first_kept(); logical < match.pages; ++logical) {
      const PageId page = PrefixTree::page(path[static_cast<std::size_t>(logical)], g);
      pools_[static_cast<std::size_t>(page.pool)].retain(page);
      table.append(page);
      taken.push_back({g, logical, page});
    }
  }
  return match.pages;
}

bool KvCache::make_free(std::size_t pool, std::int32_t pages) {
  const PagePool& at = pools_[pool];
  const auto number = static_cast<std::int32_t>(pool);
  while (at.free() < pages) {
    if (group(number % groups()).window > 0 && tree_.evict_window_page(number)) continue;
    if (!tree_.evict_leaf(number)) return false;
  }
  return true;
}

// Who really gets each of so many new pages: as wanted, while there is room. False where there is none left.
bool KvCache::settle_owners(std::int32_t pages, std::span<const std::int32_t> wanted, CoordinateSet among) {
  owner_scratch_.clear();
  std::vector<std::int32_t> rooms = this->rooms(among);
  for (std::int32_t i = 0; i < pages; ++i) {
    const auto at = static_cast<std::size_t>(i);
    std::int32_t owner = at < wanted.size() ? wanted[at] : 0;
    if (rooms[static_cast<std::size_t>(owner)] == 0)
      owner = static_cast<std::int32_t>(std::ranges::max_element(rooms) - rooms.begin());
    if (rooms[static_cast<std::size_t>(owner)]-- <= 0) return false;
    owner_scratch_.push_back(owner);
  }
  return true;
}

Status KvCache::grow(SequencePages& sequence, std::int64_t tokens, std::vector<NewPage>& taken,
                     std::span<const std::int32_t> owners, CoordinateSet among) {
  const std::int32_t missing = pages_for(tokens) - sequence.tables.front().size();
  if (missing <= 0) return {};
  if (!settle_owners(missing, owners, among)) {
    std::int32_t most = 0;
    for (const std::int32_t room : rooms(among)) most += room;
    return {ErrorCode::kExhausted, fmt::format("{} KV pages are needed and {} of {} are free or can be freed",
                                               missing, most, counts(0).capacity)};
  }
  const std::vector<std::int32_t> settled = owner_scratch_;
  for (std::int32_t c = 0; c < coordinates(); ++c) {
    const auto share = static_cast<std::int32_t>(std::ranges::count(settled, c));
    // Cannot fail after the check above: evicting for one pool frees, and never takes, in the others.
    for (std::int32_t g = 0; g < groups() && share > 0; ++g) {
      if (!make_free(pool(g, c), share))
        return {ErrorCode::kInternal, "KV pages counted as evictable are held"};
    }
  }
  for (std::int32_t g = 0; g < groups(); ++g) {
    PageTable& table = sequence.tables[static_cast<std::size_t>(g)];
    std::vector<std::vector<PageId>> given(static_cast<std::size_t>(coordinates()));
    for (std::int32_t c = 0; c < coordinates(); ++c) {
      const auto share = static_cast<std::int32_t>(std::ranges::count(settled, c));
      auto pages = pools_[pool(g, c)].take(share, table.last_slot(static_cast<std::int32_t>(pool(g, c))));
      if (!pages.ok()) return pages.error();
      std::ranges::reverse(*pages);
      given[static_cast<std::size_t>(c)] = *std::move(pages);
    }
    for (const std::int32_t owner : settled) {
      std::vector<PageId>& from = given[static_cast<std::size_t>(owner)];
      taken.push_back({g, table.size(), from.back()});
      table.append(from.back());
      from.pop_back();
    }
  }
  return {};
}

Status KvCache::reserve(SequencePages& sequence, std::int64_t tokens, std::vector<NewPage>& taken,
                        std::span<const std::int32_t> owners) {
  SHOAL_TRY(grow(sequence, tokens, taken, owners));
  release_behind(sequence, tokens, [](std::int32_t, std::int32_t) {});
  std::erase_if(taken, [&](const NewPage& page) {
    return !sequence.tables[static_cast<std::size_t>(page.group)].has(page.logical);
  });
  return {};
}

std::int64_t KvCache::reach(const SequencePages& sequence, CoordinateSet among) const {
  std::int64_t pages = sequence.tables.front().size();
  for (const std::int32_t room : rooms(among)) pages += room;
  return pages * kPageTokens;
}

void KvCache::insert(SequencePages& sequence, std::span<const TokenId> tokens) {
  const auto full = static_cast<std::int32_t>(tokens.size() / kPageTokens);
  for (; sequence.inserted < full; ++sequence.inserted) {
    bool complete = true;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const PageTable& table = sequence.tables[g];
      const bool has = table.has(sequence.inserted);
      page_scratch_[g] = has ? table.page(sequence.inserted) : kNoPage;
      complete = complete && (has || groups_[g].window > 0);
    }
    if (!complete) return;
    sequence.place =
        tree_.descend(sequence.place,
                      tokens.subspan(static_cast<std::size_t>(sequence.inserted) * kPageTokens, kPageTokens),
                      page_scratch_);
  }
}

void KvCache::release(SequencePages& sequence) {
  if (!sequence.open()) return;
  for (std::size_t g = 0; g < groups_.size(); ++g) sequence.tables[g].clear(pools_);
  tree_.unlock(sequence.place);
  sequence = {};
}

}  // namespace shoal::kv
