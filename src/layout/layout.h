// Which ranks serve a worker, at which coordinate each sits, and whom a layer talks to.
//
// Thread-safety: values, immutable after construction.
// Invariants: ranks = tp * pp * cp * dp, numbered so that TP neighbours are closest, then CP, then DP, then
//   PP farthest. A rank is in exactly one group of every kind.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/expected.h"

namespace shoal {

struct Degrees {
  std::int32_t tp = 1;
  std::int32_t pp = 1;
  std::int32_t cp = 1;
  std::int32_t dp = 1;
  std::int32_t ep = 1;  // experts of a stage; a divisor of tp * cp * dp
};

struct Coordinate {
  std::int32_t tp = 0;
  std::int32_t pp = 0;
  std::int32_t cp = 0;
  std::int32_t dp = 0;
};

enum class GroupKind : std::uint8_t {
  kAttentionTensor,    // sums after the attention block
  kFeedForwardTensor,  // sums after a dense feed-forward block
  kContext,            // ring and partial results
  kExpert,             // dispatch and combine
  kPipeline,           // the same coordinate of every stage
  kSampling,           // vocabulary shards of the last stage
};

// The ranks of one group, in the order in which sums run, and this rank's place.
struct Group {
  std::vector<std::int32_t> ranks;
  std::int32_t index = 0;

  std::int32_t size() const { return static_cast<std::int32_t>(ranks.size()); }
  bool alone() const { return ranks.size() == 1; }
};

class Layout {
 public:
  // Fails with kInvalidArgument for a degree below 1 or an ep that divides nothing.
  static Expected<Layout> make(Degrees degrees);
  static Layout single() { return Layout(Degrees{}); }

  const Degrees& degrees() const { return degrees_; }
  std::int32_t ranks() const { return degrees_.tp * degrees_.pp * degrees_.cp * degrees_.dp; }
  Coordinate coordinate(std::int32_t rank) const;
  std::int32_t rank(Coordinate at) const;
  Group group(GroupKind kind, std::int32_t rank) const;
  // (cp, dp) coordinates: each has its own sub-batch in a step plan.
  std::int32_t sub_batches() const { return degrees_.cp * degrees_.dp; }
  std::string to_string() const;  // "tp2 pp1 cp1 dp1"
  // Plans that the head keeps unanswered: one for every stage, and one queued so that the first stage need
  // not wait for the head.
  std::int32_t plans_in_flight() const { return degrees_.pp + 1; }

 private:
  explicit Layout(Degrees degrees) : degrees_(degrees) {}
  Degrees degrees_;
};

}  // namespace shoal
