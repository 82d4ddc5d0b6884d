// What each rank of a decode worker fetches from which rank of a prefill worker: the reshard plan
// (layout/reshard.h) between the two layouts, and the pages that each rank holds.
//
// Thread-safety: pure functions.
// Errors: one sentence where the prefill worker does not hold what is wanted, or names what it cannot mean.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/expected.h"
#include "engine/engine.h"
#include "kv/kv_cache.h"
#include "wire/handover_messages.h"

namespace shoal::handover {

// By rank; ranks without pages have no sources. lacking: the pages that are to land. prefill_host: of the
// prefill worker's head.
Expected<std::vector<wire::RankWord>> landing_plan(const engine::KvPools& decode,
                                                   std::span<const kv::NewPage> lacking,
                                                   const wire::Accept& prefill,
                                                   const std::string& prefill_host);

}  // namespace shoal::handover
