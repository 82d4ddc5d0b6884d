// Which rank of a prefill worker sends which layers and heads of a page to which rank of a decode worker: the
// intersection of what the ones hold with what the others want.
//
// A page travels the same way whichever it is, so a plan names layers and heads only. With several (cp, dp)
// coordinates a page has one owner on either side, and there is a plan for each pair of coordinates.
//
// Thread-safety: values and pure functions.
// Invariants:
//   1. Every target cell (a rank's layer and head of a group) is written exactly once.
//   2. Where several sources hold a head, the lowest rank sends it.
//   3. The transfers of one pair and group do not touch: what could be one is one.
// Errors: kInvalidArgument where a target's cell is on no source, naming both.

#pragma once

#include <cstdint>
#include <vector>

#include "core/expected.h"

namespace shoal {

// What a rank's pool holds of one KV group. Layers are counted in the group (0 is its first), heads in the
// model; a rank that tensor parallelism gives copies of a head has it in its run like any other.
struct KvPart {
  std::int32_t first_layer = 0;
  std::int32_t layers = 0;
  std::int32_t first_head = 0;
  std::int32_t heads = 0;

  friend bool operator==(const KvPart&, const KvPart&) = default;
};

// Of every rank of one coordinate, by rank and group.
using KvParts = std::vector<std::vector<KvPart>>;

struct KvTransfer {
  std::int32_t source = 0;  // ranks
  std::int32_t target = 0;
  std::int32_t group = 0;
  KvPart part;  // as above, inside both ranks' parts

  friend bool operator==(const KvTransfer&, const KvTransfer&) = default;
};

// By source, then target, then group, then head.
Expected<std::vector<KvTransfer>> reshard(const KvParts& sources, const KvParts& targets);

// Payload of pages[group] pages by this plan: 2 * 32 * head_dims[group] * element_bytes for each page, layer
// and head.
std::uint64_t handover_bytes(const std::vector<KvTransfer>& plan, const std::vector<std::int64_t>& pages,
                             const std::vector<std::int32_t>& head_dims, std::int32_t element_bytes);

// A run of neighbours among a sequence's pages: logical pages [first, first + count) lie in slots
// [slot, slot + count).
struct PageRun {
  std::int32_t first = 0;
  std::int32_t slot = 0;
  std::int32_t count = 0;

  friend bool operator==(const PageRun&, const PageRun&) = default;
};

// slots: of logical pages first, first + 1, ...; runs hold at most `most` pages.
std::vector<PageRun> page_runs(std::int32_t first, const std::vector<std::int32_t>& slots, std::int32_t most);

}  // namespace shoal
