// A rank's ledger as the head is told of it.
//
// Thread-safety: pure functions; a ledger may be read while it is written.

#pragma once

#include <array>

#include "comm/ledger.h"
#include "wire/rank_messages.h"

namespace shoal::engine {

// By comm::Purpose.
using TrafficTotals = std::array<comm::Charge, comm::kPurposes>;

// What a message on a control connection is charged as.
struct ControlCharge {
  comm::Scope scope = comm::Scope::kHost;

  comm::Charge of(std::size_t bytes) const {
    comm::Charge charge;
    charge.calls = 1;
    charge.payload = bytes;
    charge.wire[static_cast<std::size_t>(scope)] = bytes;
    return charge;
  }
};

TrafficTotals totals_of(const comm::Ledger& ledger);
void add(TrafficTotals& to, const TrafficTotals& more);

// Only purposes with calls are told.
wire::Traffic message_of(const TrafficTotals& totals);
// Fails with kCorrupt where a purpose is none.
Expected<TrafficTotals> totals_of(const wire::Traffic& message);

}  // namespace shoal::engine
