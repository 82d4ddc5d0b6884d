// What was moved between ranks, for what, and what it cost.
//
// Thread-safety: any thread.
// Invariants: counters only grow. Payload is what the caller asked to move; wire bytes are what left this
//   rank.

#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace shoal::comm {

enum class Purpose : std::uint8_t { kTp, kPp, kCpRing, kCpMerge, kEp, kSample, kKv, kL3, kPlan };
inline constexpr std::size_t kPurposes = 9;
// "tp", "cp_ring": as in the metrics.
const char* purpose_name(Purpose purpose);

enum class Scope : std::uint8_t { kHost, kNetwork };
inline constexpr std::size_t kScopes = 2;
using WireBytes = std::array<std::uint64_t, kScopes>;  // by Scope

struct Charge {
  std::uint64_t calls = 0;
  std::uint64_t payload = 0;  // bytes
  WireBytes wire{};
  double hidden = 0;   // seconds behind computation
  double exposed = 0;  // seconds that the executor waited
};

class Ledger {
 public:
  void charge(Purpose purpose, const Charge& charge);
  Charge totals(Purpose purpose) const;

 private:
  struct Counters {
    std::atomic<std::uint64_t> calls{0};
    std::atomic<std::uint64_t> payload{0};
    std::array<std::atomic<std::uint64_t>, kScopes> wire{};
    std::atomic<std::uint64_t> hidden_ns{0};
    std::atomic<std::uint64_t> exposed_ns{0};
  };
  std::array<Counters, kPurposes> counters_{};
};

}  // namespace shoal::comm
