// The KV pages of a worker as its head sees them: a pool per KV group and coordinate, the prefix tree over
// all of them, and what a sequence holds.
//
// Thread-safety: none; it belongs to the engine thread.
// Ownership: owns pools and tree. A SequencePages must be given back with release() before the cache goes.
// Invariants: docs/execution.md, G1 to G8. grow() gives all groups' pages or none.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/expected.h"
#include "kv/page_pool.h"
#include "kv/page_table.h"
#include "kv/prefix_tree.h"
#include "layout/coordinate_set.h"
#include "layout/kv_groups.h"

namespace shoal::kv {

// What one sequence holds: its pages in every group and its place in the prefix tree.
struct SequencePages {
  std::vector<PageTable> tables;      // by group; empty before open()
  PrefixTree::Node* place = nullptr;  // locked; the node of logical page `inserted` - 1, or the key's root
  std::int32_t inserted = 0;          // pages of the sequence that the tree knows
  bool open() const { return !tables.empty(); }
};

struct NewPage {
  std::int32_t group = 0;
  std::int32_t logical = 0;
  PageId page;
};

struct PoolCounts {
  std::int32_t capacity = 0, free = 0, cached = 0, held = 0, fenced = 0;
};

class KvCache {
 public:
  // capacities: pages of each group's pool on each coordinate.
  KvCache(std::vector<KvGroup> groups, std::span<const std::int32_t> capacities,
          std::int32_t coordinates = 1);
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  std::int32_t groups() const { return static_cast<std::int32_t>(groups_.size()); }
  const KvGroup& group(std::int32_t g) const { return groups_[static_cast<std::size_t>(g)]; }
  std::int32_t coordinates() const { return static_cast<std::int32_t>(pools_.size()) / groups(); }
  // Which coordinate owns a page.
  std::int32_t owner(PageId page) const { return page.pool / groups(); }
  // Whether more than one sequence holds it.
  bool shared(PageId page) const { return pools_[static_cast<std::size_t>(page.pool)].holders(page) > 1; }
  // Of all coordinates together, or of one.
  PoolCounts counts(std::int32_t group) const;
  PoolCounts counts(std::int32_t group, std::int32_t coordinate) const;
  std::uint64_t tree_version() const { return tree_.version(); }
  std::size_t tree_nodes() const { return tree_.nodes(); }

  // What open() would take from the cache for these tokens, at most max_pages, and how many of those pages
  // are cached now (nobody holds them), by group: they stop being available once taken.
  struct Peek {
    std::int32_t pages = 0;
    std::vector<std::int32_t> cached;
  };
  Peek peek(const PrefixKey& key, std::span<const TokenId> tokens, std::int32_t max_pages) const;

  // Starts a sequence: holds the longest usable cached prefix of at most max_pages. Returns its pages. The
  // pages taken are appended to `taken`.
  std::int32_t open(SequencePages& sequence, const PrefixKey& key, std::span<const TokenId> tokens,
                    std::int32_t max_pages, std::vector<NewPage>& taken);

  // Makes room for positions up to `tokens` in every group, evicting cached pages as needed, and appends the
  // new pages to `taken`. owners: of the new pages, in order; coordinate 0 where left out. A page whose owner
  // has no room goes to the coordinate that has most, of those in `among`; empty: of all. Fails with
  // kExhausted, taking nothing, where even eviction does not suffice on any of these.
  Status grow(SequencePages& sequence, std::int64_t tokens, std::vector<NewPage>& taken,
              std::span<const std::int32_t> owners = {}, CoordinateSet among = {});
  // grow() for positions that are computed elsewhere: window groups keep only pages that the position after
  // them sees. `taken` then names only pages that are held. All groups need as much room for a moment.
  Status reserve(SequencePages& sequence, std::int64_t tokens, std::vector<NewPage>& taken,
                 std::span<const std::int32_t> owners = {});
  // The most positions that grow() could reach now.
  std::int64_t reach(const SequencePages& sequence, CoordinateSet among = {}) const;

  // Puts the full pages among the first `tokens.size()` positions into the tree: all of them are computed.
  void insert(SequencePages& sequence, std::span<const TokenId> tokens);

  // Positions from `next` on are all that is still to be computed: window groups give back what none of them
  // sees. Calls released(group, first_kept) for each group that gave something back.
  template <typename F>
  void release_behind(SequencePages& sequence, std::int64_t next, F&& released) {
    for (std::int32_t g = 0; g < groups(); ++g) {
      const std::int32_t window = group(g).window;
      if (window <= 0) continue;
      PageTable& table = sequence.tables[static_cast<std::size_t>(g)];
      if (table.release_below(first_visible_page(next, window), pools_)) released(g, table.first_kept());
    }
  }

  // Gives back everything; what the tree keeps stays cached.
  void release(SequencePages& sequence);

  // Pages that grow() could take now: free, or given up by eviction. Of all coordinates, or of one.
  std::int32_t available(std::int32_t group) const;
  std::int32_t available(std::int32_t group, std::int32_t coordinate) const;
  // Pages in every group.
  std::int32_t room(std::int32_t coordinate) const;
  // Gives up every cached page that no sequence's prefix needs.
  void flush() { tree_.evict_all(); }

 private:
  std::size_t pool(std::int32_t group, std::int32_t coordinate) const {
    return static_cast<std::size_t>(coordinate * groups() + group);
  }
  bool make_free(std::size_t pool, std::int32_t pages);
  bool settle_owners(std::int32_t pages, std::span<const std::int32_t> wanted, CoordinateSet among);
  // room() of each coordinate in `among`, 0 of the others.
  std::vector<std::int32_t> rooms(CoordinateSet among) const;

  std::vector<KvGroup> groups_;
  std::vector<PagePool> pools_;
  PrefixTree tree_;
  std::vector<PageId> page_scratch_;
  std::vector<std::int32_t> owner_scratch_;
};

}  // namespace shoal::kv
