// Who is near whom: each pair of ranks measured over each carrier, and the picture of it.
//
// Thread-safety: measure_links() is called by every rank at once, on its executor thread; the rest is pure.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/collectives.h"
#include "core/expected.h"

namespace shoal::cli {

struct CommLink {
  std::string carrier;
  std::int32_t from = 0;
  std::int32_t to = 0;
  double microseconds = 0;  // one way, 8 bytes
  double gb_per_s = 0;      // one way, 4 MiB
};

struct CommTopology {
  std::vector<std::string> hosts;  // identity of each rank's host
  std::vector<CommLink> links;
};

// One pair after the other; all ranks get all links.
Expected<std::vector<CommLink>> measure_links(const std::string& carrier, comm::Collectives& group);
// Of each rank, by its index in the group.
Expected<std::vector<std::string>> gather_hosts(comm::Collectives& group, const std::string& own);

std::string topology_table(const CommTopology& topology);
// Ranks on a circle, those of one host in one colour; lines are links, the faster the thicker.
std::string topology_svg(const CommTopology& topology);

}  // namespace shoal::cli
