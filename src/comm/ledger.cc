#include "comm/ledger.h"

namespace shoal::comm {
namespace {

void add(std::atomic<std::uint64_t>& counter, std::uint64_t value) {
  counter.fetch_add(value, std::memory_order_relaxed);
}
std::uint64_t read(const std::atomic<std::uint64_t>& counter) {
  return counter.load(std::memory_order_relaxed);
}

}  // namespace

const char* purpose_name(Purpose purpose) {
  switch (purpose) {
    case Purpose::kTp:
      return "tp";
    case Purpose::kPp:
      return "pp";
    case Purpose::kCpRing:
      return "cp_ring";
    case Purpose::kCpMerge:
      return "cp_merge";
    case Purpose::kEp:
      return "ep";
    case Purpose::kSample:
      return "sample";
    case Purpose::kKv:
      return "kv";
    case Purpose::kL3:
      return "l3";
    case Purpose::kPlan:
      return "plan";
  }
  return "?";
}

void Ledger::charge(Purpose purpose, const Charge& charge) {
  Counters& counters = counters_[static_cast<std::size_t>(purpose)];
  add(counters.calls, charge.calls);
  add(counters.payload, charge.payload);
  for (std::size_t scope = 0; scope < kScopes; ++scope) add(counters.wire[scope], charge.wire[scope]);
  add(counters.hidden_ns, static_cast<std::uint64_t>(charge.hidden * 1e9));
  add(counters.exposed_ns, static_cast<std::uint64_t>(charge.exposed * 1e9));
}

Charge Ledger::totals(Purpose purpose) const {
  const Counters& counters = counters_[static_cast<std::size_t>(purpose)];
  Charge totals;
  totals.calls = read(counters.calls);
  totals.payload = read(counters.payload);
  for (std::size_t scope = 0; scope < kScopes; ++scope) totals.wire[scope] = read(counters.wire[scope]);
  totals.hidden = static_cast<double>(read(counters.hidden_ns)) / 1e9;
  totals.exposed = static_cast<double>(read(counters.exposed_ns)) / 1e9;
  return totals;
}

}  // namespace shoal::comm
