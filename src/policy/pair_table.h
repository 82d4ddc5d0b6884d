// What has been learned of pairs of workers that answer together: which of them fail as a pair though both
// are well (a link that is cut, two builds that do not fit), and how long a prompt's KV takes from the one to
// the other.
//
// Thread-safety: none. Time is passed in.
// Invariants:
//   1. At most kMost pairs are known; beyond, the one told of least recently is forgotten.
//   2. A pair that nothing is known of passes, and takes as long as the others do on average.

#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>

#include "core/clock.h"
#include "policy/resilience.h"

namespace shoal::policy {

class PairTable {
 public:
  static constexpr std::size_t kMost = 4096;

  explicit PairTable(Breaker::Options breaker = {}) : breaker_(breaker) {}

  // Whether a request may be given to it. prefill, decode: WorkerView::id.
  bool passes(std::uint64_t prefill, std::uint64_t decode, TimePoint now) const;
  // Expected, from the prefill worker's first token to the decode worker's.
  double link_seconds(std::uint64_t prefill, std::uint64_t decode) const;

  void sent(std::uint64_t prefill, std::uint64_t decode, TimePoint now);
  void succeeded(std::uint64_t prefill, std::uint64_t decode);
  // True where its breaker opened by this.
  bool failed(std::uint64_t prefill, std::uint64_t decode, TimePoint now);
  // A request there has ended and says nothing of the pair.
  void forgotten(std::uint64_t prefill, std::uint64_t decode);
  // seconds: as link_seconds() means it, of one request.
  void learn_link(std::uint64_t prefill, std::uint64_t decode, double seconds);

  std::size_t known() const { return pairs_.size(); }
  // Pairs that requests are kept from.
  std::size_t open(TimePoint now) const;

 private:
  struct Pair {
    std::uint64_t prefill = 0;
    std::uint64_t decode = 0;
    Breaker breaker;
    double seconds = -1;  // below 0: not known
  };
  // One number for both: ids are counted, 2^32 of them in no gateway's life.
  static std::uint64_t key(std::uint64_t prefill, std::uint64_t decode) { return prefill << 32 | decode; }
  const Pair* find(std::uint64_t prefill, std::uint64_t decode) const;
  Pair& take(std::uint64_t prefill, std::uint64_t decode);

  const Breaker::Options breaker_;
  std::list<Pair> pairs_;  // the one used last comes first
  std::unordered_map<std::uint64_t, std::list<Pair>::iterator> by_key_;
  std::optional<double> usual_seconds_;
};

}  // namespace shoal::policy
