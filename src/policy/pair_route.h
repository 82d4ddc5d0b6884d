// Which two workers answer a request together: one computes its prompt, the other goes on from there.
//
// Thread-safety: pure.
// Invariants:
//   1. Only available workers among the candidates are chosen, and no pair whose breaker keeps requests away;
//      nothing where there is none.
//   2. The same input gives the same choice; chance is passed in as a number.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "policy/pair_table.h"
#include "policy/route.h"

namespace shoal::policy {

struct PairInput {
  RoutePolicy policy = RoutePolicy::kShortestQueue;
  const Profile& profile;
  std::span<const WorkerView> fleet;
  // Indexes into fleet: those that serve the model, by role.
  std::span<const std::uint32_t> prefills;
  std::span<const std::uint32_t> decodes;
  // Workers, and pairs of them, that have failed this request already: taken only where nothing else is left.
  std::span<const std::uint32_t> avoid;
  std::span<const std::pair<std::uint32_t, std::uint32_t>> avoid_pairs;
  const PairTable& links;
  TimePoint now{};
  std::uint64_t chance = 0;
  std::uint64_t turn = 0;
};

struct PairChoice {
  RouteChoice prefill;
  RouteChoice decode;
  double link_seconds = 0;

  // Of both: what decided.
  RouteReason reason() const {
    const bool by_decode = prefill.reason == RouteReason::kOnly || decode.reason == RouteReason::kLastResort;
    return by_decode ? decode.reason : prefill.reason;
  }
  // Predicted, until the decode worker's first token.
  double seconds() const { return prefill.seconds + link_seconds + decode.seconds; }
};

// Of each side the policy's best kBest are looked at, of them the pair with the least seconds is taken where
// the policy goes by seconds, else the first; all of them only where these lead to nothing. All pairs of two
// thousand workers would be a million.
inline constexpr std::size_t kBestOfSide = 8;
std::optional<PairChoice> choose_pair(const PairInput& input);

}  // namespace shoal::policy
