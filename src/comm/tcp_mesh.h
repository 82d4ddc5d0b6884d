// How ranks get the connections of their TCP carrier: of two ranks the higher calls the lower.
//
// Thread-safety: one call for each rank, all at once; each occupies its thread.
// Ownership: what it returns owns its connections.
// Errors: one sentence that names the rank which could not be reached or did not come. Strangers, garbage and
//   ranks of another epoch are turned away and waited past.

#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "comm/socket.h"
#include "core/expected.h"
#include "core/ids.h"
#include "wire/cluster_token.h"

namespace shoal::comm {

// Told, on the calling thread, of the connection that is being opened, which any thread may shut down until
// this is called again: with null, before the connection moves or goes.
using OnCall = std::function<void(const Socket*)>;

// endpoints: where each rank listens, by rank. One socket for each rank, this one's empty. Ends early,
// besides by the deadline, where the listener and the call at hand are shut down.
Expected<std::vector<Socket>> connect_mesh(std::int32_t rank, std::span<const Endpoint> endpoints,
                                           Listener& listener, const wire::ClusterToken& token, Epoch epoch,
                                           TimePoint deadline, const OnCall& on_call = {});

}  // namespace shoal::comm
