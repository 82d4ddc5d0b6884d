#include "kv/prefix_tree.h"

#include <algorithm>
#include <cassert>

#include "core/mix64.h"

namespace shoal::kv {

class PrefixTree::Node {
 public:
  Node* parent = nullptr;
  const PrefixKey* key = nullptr;  // of a root
  std::uint64_t hash = 0;
  std::uint64_t last_use = 0;
  std::int32_t children = 0;
  std::int32_t locks = 0;  // at this node and below
  std::array<TokenId, kPageTokens> tokens{};
  std::vector<PageId> pages;  // by group

  bool is_root() const { return parent == nullptr; }
  bool has(std::size_t group) const { return pages[group].slot >= 0; }
  std::size_t pool(std::size_t group) const { return static_cast<std::size_t>(pages[group].pool); }
};

namespace {

std::uint64_t hash_page(const void* parent, std::span<const TokenId> tokens) {
  std::uint64_t hash = mix64(reinterpret_cast<std::uintptr_t>(parent));
  for (const TokenId token : tokens)
    hash = mix64(hash + 0x9e3779b97f4a7c15ULL + static_cast<std::uint32_t>(token));
  return hash;
}

}  // namespace

PrefixTree::PrefixTree(std::span<const KvGroup> groups, std::span<PagePool> pools)
    : pools_(pools), window_pages_(pools.size()), evictable_(pools.size(), 0) {
  for (const KvGroup& group : groups) windows_.push_back(group.window);
}

PrefixTree::~PrefixTree() = default;

PageId PrefixTree::page(const Node* node, std::int32_t group) {
  return node->pages[static_cast<std::size_t>(group)];
}

PrefixTree::Node* PrefixTree::parent(const Node* node) { return node->parent; }

PrefixTree::Node* PrefixTree::find_child(const Node* parent, std::uint64_t hash,
                                         std::span<const TokenId> page_tokens) const {
  const auto [begin, end] = nodes_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    Node* node = it->second.get();
    if (node->parent == parent && std::ranges::equal(node->tokens, page_tokens)) return node;
  }
  return nullptr;
}

PrefixTree::Match PrefixTree::match(const PrefixKey& key, std::span<const TokenId> tokens,
                                    std::int32_t max_pages) const {
  Match best;
  const auto root = roots_.find(key);
  if (root == roots_.end()) return best;
  Node* node = root->second.get();
  // Pages of each window group without a gap up to here.
  std::vector<std::int32_t> unbroken(windows_.size(), 0);
  for (std::int32_t depth = 1; depth <= max_pages; ++depth) {
    const auto page_tokens = tokens.subspan(static_cast<std::size_t>(depth - 1) * kPageTokens, kPageTokens);
    node = find_child(node, hash_page(node, page_tokens), page_tokens);
    if (node == nullptr) break;
    bool usable = true;
    for (std::size_t g = 0; g < windows_.size(); ++g) {
      if (!is_window(g)) continue;
      unbroken[g] = node->has(g) ? unbroken[g] + 1 : 0;
      const std::int64_t position = static_cast<std::int64_t>(depth) * kPageTokens;
      if (unbroken[g] < depth - first_visible_page(position, windows_[g])) usable = false;
    }
    if (usable) best = {node, depth};
  }
  return best;
}

void PrefixTree::set_use(Node* node, std::uint64_t use) {
  if (node->is_root()) return;
  const bool leaf = leaves_.erase({node->last_use, node}) > 0;
  for (UseOrder& order : window_pages_) {
    if (auto handle = order.extract({node->last_use, node}); !handle.empty()) {
      handle.value().first = use;
      order.insert(std::move(handle));
    }
  }
  node->last_use = use;
  if (leaf) leaves_.insert({use, node});
}

void PrefixTree::count_evictable(const Node* node, std::int32_t by) {
  for (std::size_t g = 0; g < windows_.size(); ++g) {
    if (node->has(g)) evictable_[node->pool(g)] += by;
  }
}

PrefixTree::Node* PrefixTree::lock(Node* node) {
  for (Node* at = node; at != nullptr; at = at->parent) {
    set_use(at, ++clock_);
    if (at->locks++ > 0 || at->is_root()) continue;
    leaves_.erase({at->last_use, at});
    count_evictable(at, -1);
  }
  return node;
}

PrefixTree::Node* PrefixTree::lock_root(const PrefixKey& key) {
  auto [it, fresh] = roots_.try_emplace(key);
  if (fresh) {
    it->second = std::make_unique<Node>();
    it->second->key = &it->first;
  }
  return lock(it->second.get());
}

void PrefixTree::unlock(Node* node) {
  // Last use is now: a conversation that just ended is the likeliest to go on.
  set_use(node, ++clock_);
  Node* root = node;
  for (Node* at = node; at != nullptr; at = at->parent) {
    root = at;
    assert(at->locks > 0);
    if (--at->locks > 0 || at->is_root()) continue;
    if (at->children == 0) leaves_.insert({at->last_use, at});
    count_evictable(at, 1);
  }
  drop_root_if_unused(root);
}

void PrefixTree::drop_root_if_unused(Node* root) {
  if (root->locks > 0 || root->children > 0) return;
  // A copy: the key that the root points to goes with it.
  const PrefixKey key = *root->key;
  roots_.erase(key);
}

void PrefixTree::set_page(Node* node, std::int32_t group, PageId page) {
  const auto g = static_cast<std::size_t>(group);
  node->pages[g] = page;
  pools_[node->pool(g)].keep(page);
  if (is_window(g)) window_pages_[node->pool(g)].insert({node->last_use, node});
  if (node->locks == 0) ++evictable_[node->pool(g)];
}

void PrefixTree::drop_page(Node* node, std::int32_t group) {
  const auto g = static_cast<std::size_t>(group);
  if (!node->has(g)) return;
  const std::size_t pool = node->pool(g);
  if (is_window(g)) window_pages_[pool].erase({node->last_use, node});
  if (node->locks == 0) --evictable_[pool];
  pools_[pool].forget(node->pages[g]);
  node->pages[g] = kNoPage;
}

PrefixTree::Node* PrefixTree::descend(Node* locked, std::span<const TokenId> page_tokens,
                                      std::span<const PageId> pages) {
  ++version_;
  const std::uint64_t hash = hash_page(locked, page_tokens);
  Node* child = find_child(locked, hash, page_tokens);
  if (child == nullptr) {
    auto fresh = std::make_unique<Node>();
    child = fresh.get();
    child->parent = locked;
    child->hash = hash;
    std::ranges::copy(page_tokens, child->tokens.begin());
    child->pages.assign(windows_.size(), kNoPage);
    child->last_use = ++clock_;
    nodes_.emplace(hash, std::move(fresh));
    ++locked->children;
  }
  // Every ancestor already counts this lock.
  if (child->locks++ == 0) {
    leaves_.erase({child->last_use, child});
    count_evictable(child, -1);
  }
  set_use(child, ++clock_);
  for (std::size_t g = 0; g < windows_.size(); ++g) {
    if (!child->has(g) && pages[g].slot >= 0) set_page(child, static_cast<std::int32_t>(g), pages[g]);
  }
  return child;
}

void PrefixTree::erase_leaf(Node* node) {
  ++version_;
  for (std::size_t g = 0; g < windows_.size(); ++g) drop_page(node, static_cast<std::int32_t>(g));
  leaves_.erase({node->last_use, node});
  Node* up = node->parent;
  --up->children;
  if (up->is_root()) {
    drop_root_if_unused(up);
  } else if (up->children == 0 && up->locks == 0) {
    // It was used no earlier than what stood on it.
    if (up->last_use < node->last_use) set_use(up, node->last_use);
    leaves_.insert({up->last_use, up});
  }
  const auto [begin, end] = nodes_.equal_range(node->hash);
  for (auto it = begin; it != end; ++it) {
    if (it->second.get() == node) {
      nodes_.erase(it);
      return;
    }
  }
}

bool PrefixTree::evict_leaf(std::int32_t pool) {
  if (leaves_.empty()) return false;
  const auto g = static_cast<std::size_t>(pool) % windows_.size();
  const auto in_pool =
      std::ranges::find_if(leaves_, [&](const auto& each) { return each.second->pages[g].pool == pool; });
  erase_leaf((in_pool == leaves_.end() ? leaves_.begin() : in_pool)->second);
  return true;
}

bool PrefixTree::evict_window_page(std::int32_t pool) {
  const auto p = static_cast<std::size_t>(pool);
  const std::size_t g = p % windows_.size();
  for (const auto& [use, node] : window_pages_[p]) {
    if (pools_[p].state(node->pages[g].slot) != PageState::kCached) continue;
    ++version_;
    drop_page(node, static_cast<std::int32_t>(g));
    return true;
  }
  return false;
}

void PrefixTree::evict_all() {
  while (evict_leaf()) {
  }
}

}  // namespace shoal::kv
