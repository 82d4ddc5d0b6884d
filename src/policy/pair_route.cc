#include "policy/pair_route.h"

#include <algorithm>
#include <map>
#include <vector>

namespace shoal::policy {
namespace {

using Indexes = std::vector<std::uint32_t>;

std::vector<RouteChoice> side(const PairInput& input, RequestPart part, std::size_t most) {
  const bool prefill = part == RequestPart::kPrefill;
  const auto candidates = prefill ? input.prefills : input.decodes;
  // Sides that turn together would meet the same partner for ever.
  const std::uint64_t turn =
      prefill ? input.turn : input.turn / std::max<std::size_t>(1, input.prefills.size());
  return rank({.policy = input.policy,
               .part = part,
               .profile = input.profile,
               .fleet = input.fleet,
               .candidates = candidates,
               .avoid = input.avoid,
               // Decode workers show no speed of their own with prompts.
               .usual = usual_rate(input.fleet, input.prefills),
               .now = input.now,
               .chance = prefill ? input.chance : input.chance ^ 0x9e3779b97f4a7c15,
               .turn = turn},
              most);
}

// The best pair of both lists, whether this request has failed on it or not.
std::optional<PairChoice> best(const PairInput& input, const std::vector<RouteChoice>& prefills,
                               const std::vector<RouteChoice>& decodes, bool avoid) {
  std::optional<PairChoice> found;
  for (const RouteChoice& prefill : prefills) {
    for (const RouteChoice& decode : decodes) {
      const std::uint64_t from = input.fleet[prefill.worker].id;
      const std::uint64_t to = input.fleet[decode.worker].id;
      const std::pair pair(prefill.worker, decode.worker);
      if (avoid && std::ranges::find(input.avoid_pairs, pair) != input.avoid_pairs.end()) continue;
      if (!input.links.passes(from, to, input.now)) continue;
      const PairChoice choice{prefill, decode, input.links.link_seconds(from, to)};
      if (!found || choice.seconds() < found->seconds()) found = choice;
      // The other policies' lists are in the order of their own.
      if (input.policy != RoutePolicy::kShortestQueue) return found;
    }
  }
  return found;
}

// All of one kind. Pairs that this request has failed on come last, also after those of workers beyond the
// best.
std::optional<PairChoice> choose_alike(const PairInput& input) {
  const auto prefills = side(input, RequestPart::kPrefill, kBestOfSide);
  const auto decodes = side(input, RequestPart::kDecode, kBestOfSide);
  if (prefills.empty() || decodes.empty()) return std::nullopt;
  if (auto choice = best(input, prefills, decodes, true)) return choice;
  PairInput by_seconds = input;  // policies that draw two would draw the same two
  by_seconds.policy = RoutePolicy::kShortestQueue;
  const auto all_prefills = side(by_seconds, RequestPart::kPrefill, input.prefills.size());
  const auto all_decodes = side(by_seconds, RequestPart::kDecode, input.decodes.size());
  if (auto choice = best(by_seconds, all_prefills, all_decodes, true)) return choice;
  auto choice = best(by_seconds, all_prefills, all_decodes, false);
  if (choice) choice->prefill.reason = choice->decode.reason = RouteReason::kLastResort;
  return choice;
}

bool better(const PairChoice& a, const PairChoice& b) {
  const bool a_last = a.reason() == RouteReason::kLastResort;
  const bool b_last = b.reason() == RouteReason::kLastResort;
  return a_last != b_last ? b_last : a.seconds() < b.seconds();
}

}  // namespace

std::optional<PairChoice> choose_pair(const PairInput& input) {
  if (input.prefills.empty() || input.decodes.empty()) return std::nullopt;
  const auto kind = [&](std::uint32_t index) { return input.fleet[index].kind; };
  const std::uint64_t first = kind(input.prefills.front());
  const auto alike = [&](std::uint32_t index) { return kind(index) == first; };
  if (std::ranges::all_of(input.prefills, alike) && std::ranges::all_of(input.decodes, alike))
    return choose_alike(input);
  // While a model is being replaced by another of its name there are two.
  std::map<std::uint64_t, std::pair<Indexes, Indexes>> kinds;
  for (const std::uint32_t index : input.prefills) kinds[kind(index)].first.push_back(index);
  for (const std::uint32_t index : input.decodes) kinds[kind(index)].second.push_back(index);
  std::optional<PairChoice> found;
  for (const auto& [ignored, sides] : kinds) {
    if (sides.first.empty() || sides.second.empty()) continue;
    PairInput of = input;
    of.prefills = sides.first;
    of.decodes = sides.second;
    const auto choice = choose_alike(of);
    if (choice && (!found || better(*choice, *found))) found = choice;
  }
  return found;
}

}  // namespace shoal::policy
