// How ranks get the connections of their TCP carrier: of two ranks the higher calls the lower.
//
// Thread-safety: one call for each rank, all at once; each occupies its thread.
// Ownership: what it returns owns its connections.
// Errors: one sentence that names the rank which could not be reached or did not come. Strangers, garbage and
//   ranks of another epoch are turned away and waited past.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/socket.h"
#include "core/expected.h"
#include "core/ids.h"
#include "wire/cluster_token.h"

namespace shoal::comm {

// endpoints: where each rank listens, by rank. One socket for each rank, this one's empty.
Expected<std::vector<Socket>> connect_mesh(std::int32_t rank, std::span<const Endpoint> endpoints,
                                           Listener& listener, const wire::ClusterToken& token, Epoch epoch,
                                           TimePoint deadline);

}  // namespace shoal::comm
