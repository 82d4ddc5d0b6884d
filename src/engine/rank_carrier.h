// How the ranks of one worker get their carrier: who shares memory, how much of it, who sums together.
//
// Thread-safety: pure functions.

#pragma once

#include <cstdint>
#include <memory>

#include "comm/carrier.h"
#include "comm/shm_layout.h"
#include "comm/shm_segment.h"
#include "core/thread_pool.h"
#include "layout/layout.h"

namespace shoal::engine {

// Bytes that may wait between two ranks: where there are stages, the residual stream of the largest step, so
// that a stage that has finished goes on to its next plan.
std::uint64_t ring_bytes_for(const Layout& layout, std::int64_t hidden);

// The same on every rank.
comm::ShmLayout shm_layout_for(const Layout& layout, std::int32_t lanes, std::uint64_t ring_bytes);

std::unique_ptr<comm::Carrier> shm_carrier_for(std::shared_ptr<comm::ShmSegment> segment, std::int32_t rank,
                                               bool spin, ThreadPool& pool);

}  // namespace shoal::engine
