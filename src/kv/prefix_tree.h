// Which KV pages hold which prefix: a radix tree over token ids whose symbol is a whole page of 32 tokens.
//
// A node is one page of tokens and its KV page in every group. Runs are not compressed into one node: a run
// would have to be split wherever prompts part and wherever eviction takes its tail, and a node weighs some
// 300 bytes where the KV of its 32 tokens weighs at least 100 times that.
//
// Thread-safety: none; it belongs to the engine thread.
// Ownership: owns nodes; keeps its pages in the pools (PagePool::keep), which must outlive it. A sequence
//   that uses a prefix locks its deepest node and holds the pages itself.
// Invariants:
//   1. Tokens are compared, never hashes alone. Two keys share nothing.
//   2. locks(node) counts the locks at it and below: a node with none can be evicted, with all below it.
//   (A node's page may lie in the pool of any coordinate, and stays there.)
//   3. Whoever holds a page of a node locks it or a node below it, so an unlocked node's pages are held by
//      nobody.
//   4. Groups without a window have a page in every node; in window groups pages may be missing.
//   5. Eviction takes the least recently used leaf without locks, in O(log nodes). In a window group it takes
//      the least recently used page that nobody holds, past all older ones that are held.

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kv/page_pool.h"
#include "kv/page_table.h"
#include "layout/kv_groups.h"

namespace shoal::kv {

// What must be equal for two requests to share pages. Fields are compared each on its own: a salt can never
// pass for an adapter.
struct PrefixKey {
  std::string fingerprint;
  std::string adapter;
  std::string salt;
  friend auto operator<=>(const PrefixKey&, const PrefixKey&) = default;
};

class PrefixTree {
 public:
  class Node;
  // Sets of nodes in order of last use.
  using UseOrder = std::set<std::pair<std::uint64_t, Node*>>;

  // pools: by number, all groups of one coordinate side by side.
  PrefixTree(std::span<const KvGroup> groups, std::span<PagePool> pools);
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  struct Match {
    Node* node = nullptr;  // deepest node of the match; null where nothing matches
    std::int32_t pages = 0;
  };
  // The longest usable prefix of `tokens`, at most max_pages: a window group must have every page that a
  // query right after the match can see. Takes nothing; the node is valid until the next call that changes
  // the tree.
  Match match(const PrefixKey& key, std::span<const TokenId> tokens, std::int32_t max_pages) const;

  // Locks the path to the node, or the (possibly new) root of the key, and marks it as used.
  Node* lock(Node* node);
  Node* lock_root(const PrefixKey& key);
  void unlock(Node* node);

  // The child of a locked node for one page of tokens: the existing one, or a new one made of `pages` (one
  // per group, kNoPage where a window group has none). An existing node takes what it lacks from `pages`. The
  // caller's lock moves to the child.
  Node* descend(Node* locked, std::span<const TokenId> page_tokens, std::span<const PageId> pages);

  // The node's page in a group, kNoPage where it has none; its parent, null for a root.
  static PageId page(const Node* node, std::int32_t group);
  static Node* parent(const Node* node);

  // Gives up the least recently used leaf that nobody locks, of those with a page in `pool` where there are
  // any. False where there is no leaf at all. Evicting leaf after leaf frees all of evictable(pool).
  bool evict_leaf(std::int32_t pool = 0);
  // Gives up the least recently used page of a window group's pool that nobody holds; the node stays.
  bool evict_window_page(std::int32_t pool);
  // Everything that nobody locks.
  void evict_all();

  // Pages of the pool in nodes without locks: what evict_leaf() could free in all.
  std::int32_t evictable(std::int32_t pool) const { return evictable_[static_cast<std::size_t>(pool)]; }
  std::size_t nodes() const { return nodes_.size(); }
  // Grows with every change of what match() may find.
  std::uint64_t version() const { return version_; }

 private:
  Node* find_child(const Node* parent, std::uint64_t hash, std::span<const TokenId> page_tokens) const;
  void set_use(Node* node, std::uint64_t use);
  void set_page(Node* node, std::int32_t group, PageId page);
  void drop_page(Node* node, std::int32_t group);
  void erase_leaf(Node* node);
  void drop_root_if_unused(Node* root);
  void count_evictable(const Node* node, std::int32_t by);
  bool is_window(std::size_t group) const { return windows_[group] > 0; }

  std::span<PagePool> pools_;
  std::vector<std::int32_t> windows_;  // by group; 0: all positions
  std::map<PrefixKey, std::unique_ptr<Node>> roots_;
  // By hash of (parent, tokens): lookup and ownership in one.
  std::unordered_multimap<std::uint64_t, std::unique_ptr<Node>> nodes_;
  UseOrder leaves_;                      // leaves without locks
  std::vector<UseOrder> window_pages_;   // by pool: nodes that have a page in that window group's pool
  std::vector<std::int32_t> evictable_;  // by pool
  std::uint64_t clock_ = 0;
  std::uint64_t version_ = 0;
};

}  // namespace shoal::kv
