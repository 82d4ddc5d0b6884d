// What a worker that registers shows a gateway: derived from the cluster token, which itself is never sent.
//
// Thread-safety: a pure function.

#pragma once

#include <string>

#include "wire/cluster_token.h"

namespace shoal::wire {

// Hexadecimal digits of HMAC-SHA-256 of "shoal gateway registration" under the token. Who reads it may
// register workers, too, but learns nothing that opens a port inside the cluster.
std::string registration_key(const ClusterToken& token);

}  // namespace shoal::wire
