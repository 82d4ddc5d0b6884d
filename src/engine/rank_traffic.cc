#include "engine/rank_traffic.h"

#include <cmath>

namespace shoal::engine {
namespace {

constexpr auto kHost = static_cast<std::size_t>(comm::Scope::kHost);
constexpr auto kNetwork = static_cast<std::size_t>(comm::Scope::kNetwork);

std::uint64_t nanoseconds(double seconds) { return static_cast<std::uint64_t>(std::llround(seconds * 1e9)); }

}  // namespace

TrafficTotals totals_of(const comm::Ledger& ledger) {
  TrafficTotals totals;
  for (std::size_t purpose = 0; purpose < totals.size(); ++purpose)
    totals[purpose] = ledger.totals(static_cast<comm::Purpose>(purpose));
  return totals;
}

void add(TrafficTotals& to, const TrafficTotals& more) {
  for (std::size_t purpose = 0; purpose < to.size(); ++purpose) {
    comm::Charge& charge = to[purpose];
    charge.calls += more[purpose].calls;
    charge.payload += more[purpose].payload;
    for (std::size_t scope = 0; scope < comm::kScopes; ++scope)
      charge.wire[scope] += more[purpose].wire[scope];
    charge.hidden += more[purpose].hidden;
    charge.exposed += more[purpose].exposed;
  }
}

wire::Traffic message_of(const TrafficTotals& totals) {
  wire::Traffic message;
  for (std::size_t purpose = 0; purpose < totals.size(); ++purpose) {
    const comm::Charge& charge = totals[purpose];
    if (charge.calls == 0) continue;
    message.lines.push_back({static_cast<std::uint8_t>(purpose), charge.calls, charge.payload,
                             charge.wire[kHost], charge.wire[kNetwork], nanoseconds(charge.hidden),
                             nanoseconds(charge.exposed)});
  }
  return message;
}

Expected<TrafficTotals> totals_of(const wire::Traffic& message) {
  TrafficTotals totals;
  for (const wire::TrafficLine& line : message.lines) {
    if (line.purpose >= totals.size())
      return Status(ErrorCode::kCorrupt, "a traffic message names a purpose that is none");
    comm::Charge& charge = totals[line.purpose];
    charge.calls = line.calls;
    charge.payload = line.payload;
    charge.wire[kHost] = line.host;
    charge.wire[kNetwork] = line.network;
    charge.hidden = static_cast<double>(line.hidden_ns) / 1e9;
    charge.exposed = static_cast<double>(line.exposed_ns) / 1e9;
  }
  return totals;
}

}  // namespace shoal::engine
