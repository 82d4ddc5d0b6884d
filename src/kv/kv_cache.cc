#include "kv/kv_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace shoal::kv {
namespace {

std::vector<PagePool> make_pools(std::span<const std::int32_t> capacities) {
  std::vector<PagePool> pools;
  for (const std::int32_t capacity : capacities)
    pools.emplace_back(static_cast<std::int32_t>(pools.size()), capacity);
  return pools;
}

}  // namespace

KvCache::KvCache(std::vector<KvGroup> groups, std::span<const std::int32_t> capacities)
    : groups_(std::move(groups)),
      pools_(make_pools(capacities)),
      tree_(groups_, pools_),
      page_scratch_(groups_.size(), kNoPage) {}

PoolCounts KvCache::counts(std::int32_t group) const {
  const PagePool& pool = pools_[static_cast<std::size_t>(group)];
  return {pool.capacity(), pool.free(), pool.cached(), pool.held(), pool.fenced()};
}

std::int32_t KvCache::available(std::int32_t g) const {
  const PagePool& pool = pools_[static_cast<std::size_t>(g)];
  // A window group's pages are given up one by one wherever they lie; elsewhere only unlocked leaves go.
  return pool.free() + (group(g).window > 0 ? pool.cached() : tree_.evictable(g));
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
      if (pools_[g].state(page.slot) == PageState::kCached) ++peek.cached[g];
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
      pools_[static_cast<std::size_t>(g)].retain(page);
      table.append(page);
      taken.push_back({g, logical, page});
    }
  }
  return match.pages;
}

bool KvCache::make_free(std::int32_t g, std::int32_t pages) {
  const PagePool& pool = pools_[static_cast<std::size_t>(g)];
  while (pool.free() < pages) {
    if (group(g).window > 0 && tree_.evict_window_page(g)) continue;
    if (!tree_.evict_leaf()) return false;
  }
  return true;
}

Status KvCache::grow(SequencePages& sequence, std::int64_t tokens, std::vector<NewPage>& taken) {
  const std::int32_t size = pages_for(tokens);
  for (std::int32_t g = 0; g < groups(); ++g) {
    const std::int32_t missing = size - sequence.tables[static_cast<std::size_t>(g)].size();
    if (missing > available(g))
      return Status(ErrorCode::kExhausted,
                    fmt::format("{} KV pages are needed and {} of {} are free or can be freed", missing,
                                available(g), counts(g).capacity));
  }
  for (std::int32_t g = 0; g < groups(); ++g) {
    PageTable& table = sequence.tables[static_cast<std::size_t>(g)];
    const std::int32_t missing = size - table.size();
    if (missing <= 0) continue;
    PagePool& pool = pools_[static_cast<std::size_t>(g)];
    // Cannot fail after the check above: evicting for one group frees, and never takes, in the others.
    if (!make_free(g, missing)) return Status(ErrorCode::kInternal, "KV pages counted as evictable are held");
    auto pages = pool.take(missing, table.last_slot());
    if (!pages.ok()) return pages.error();
    for (const PageId page : *pages) {
      taken.push_back({g, table.size(), page});
      table.append(page);
    }
  }
  return {};
}

std::int64_t KvCache::reach(const SequencePages& sequence) const {
  std::int64_t pages = std::numeric_limits<std::int32_t>::max();
  for (std::int32_t g = 0; g < groups(); ++g)
    pages = std::min<std::int64_t>(pages, sequence.tables[static_cast<std::size_t>(g)].size() + available(g));
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
  for (std::size_t g = 0; g < groups_.size(); ++g) sequence.tables[g].clear(pools_[g]);
  tree_.unlock(sequence.place);
  sequence = {};
}

}  // namespace shoal::kv
