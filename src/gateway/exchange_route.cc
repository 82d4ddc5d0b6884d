// Who is to answer: one worker, a pair of them, or whoever can go on with what another has begun.

#include <fmt/format.h>

#include <algorithm>

#include "gateway/exchange.h"
#include "policy/pair_route.h"

namespace shoal::gateway {

std::optional<Exchange::Route> Exchange::choose() {
  const ModelWorkers& serving = core_.registry.serving(model_);
  const std::uint64_t turn = core_.turn++;
  if (goes_on()) return choose_alone(able_to_go_on(serving), turn);
  if (!generates_) return choose_alone(serving.all, turn);
  const auto alone = choose_alone(serving.whole, turn);
  if (facts_.alone) return alone || !serving.whole.empty() ? alone : choose_alone(serving.prefill, turn);
  const auto pair = choose_pair(serving, turn);
  if (!alone || !pair) return alone ? alone : pair;
  const bool alone_is_last = alone->reason == policy::RouteReason::kLastResort;
  const bool pair_is_last = pair->reason == policy::RouteReason::kLastResort;
  if (alone_is_last != pair_is_last) return alone_is_last ? pair : alone;
  return pair->seconds < alone->seconds ? pair : alone;
}

std::vector<std::uint32_t> Exchange::to_avoid() const {
  std::vector<std::uint32_t> avoid;
  for (const WorkerPtr& worker : tried_) {
    if (core_.registry.holds(worker)) avoid.push_back(worker->index);
  }
  return avoid;
}

std::optional<Exchange::Route> Exchange::choose_alone(std::span<const std::uint32_t> candidates,
                                                      std::uint64_t turn) {
  if (candidates.empty()) return std::nullopt;
  const std::vector<std::uint32_t> avoid = to_avoid();
  const auto choice = policy::choose({.policy = core_.options.policy,
                                      .profile = profile_,
                                      .fleet = core_.registry.views(),
                                      .candidates = candidates,
                                      .avoid = avoid,
                                      .now = now(),
                                      .chance = core_.random(),
                                      .turn = turn});
  if (!choice) return std::nullopt;
  return Route{*choice, std::nullopt, choice->reason, choice->seconds};
}

std::optional<Exchange::Route> Exchange::choose_pair(const ModelWorkers& serving, std::uint64_t turn) {
  if (serving.prefill.empty() || serving.decode.empty()) return std::nullopt;
  const std::vector<std::uint32_t> avoid = to_avoid();
  std::vector<std::pair<std::uint32_t, std::uint32_t>> avoid_pairs;
  for (const auto& [prefill, decode] : tried_pairs_) {
    if (core_.registry.holds(prefill) && core_.registry.holds(decode))
      avoid_pairs.emplace_back(prefill->index, decode->index);
  }
  const auto of = [&](std::span<const std::uint32_t> decodes) {
    return policy::choose_pair({.policy = core_.options.policy,
                                .profile = profile_,
                                .fleet = core_.registry.views(),
                                .prefills = serving.prefill,
                                .decodes = decodes,
                                .avoid = avoid,
                                .avoid_pairs = avoid_pairs,
                                .links = core_.pairs,
                                .now = now(),
                                .chance = core_.random(),
                                .turn = turn});
  };
  std::optional<policy::PairChoice> choice;
  const WorkerPtr kept = std::exchange(kept_decode_, nullptr);
  if (kept != nullptr && core_.registry.holds(kept)) choice = of({&kept->index, 1});
  if (!choice) choice = of(serving.decode);
  if (!choice) return std::nullopt;
  return Route{choice->decode, choice->prefill, choice->reason(), choice->seconds()};
}

// With the same model file. A prefill worker where there is nobody else: its own prompts wait meanwhile.
std::vector<std::uint32_t> Exchange::able_to_go_on(const ModelWorkers& serving) const {
  const auto able = [&](std::uint32_t index) {
    const Worker& worker = *core_.registry.at(index);
    return worker.resumes() && worker.report->fingerprint == fingerprint_;
  };
  std::vector<std::uint32_t> those;
  for (const auto* list : {&serving.whole, &serving.decode})
    std::ranges::copy_if(*list, std::back_inserter(those), able);
  const auto views = core_.registry.views();
  if (std::ranges::none_of(those, [&](std::uint32_t index) { return views[index].available; }))
    std::ranges::copy_if(serving.prefill, std::back_inserter(those), able);
  return those;
}

std::string Exchange::why_nobody() const {
  const ModelWorkers& serving = core_.registry.serving(model_);
  if (serving.all.empty()) return "no worker serves it any more";
  if (generates_ && serving.whole.empty() && serving.prefill.empty() != serving.decode.empty())
    return fmt::format("of prefill and decode workers there are {} ones alone: an answer takes one of each",
                       serving.prefill.empty() ? "decode" : "prefill");
  // Who is up says least of what is wrong.
  const auto views = core_.registry.views();
  const auto down =
      std::ranges::find_if(serving.all, [&](std::uint32_t index) { return !views[index].available; });
  const Worker& worker = *core_.registry.at(down == serving.all.end() ? serving.all.front() : *down);
  return fmt::format(
      "none of {} workers can take the request; {}: {}", serving.all.size(), worker.name,
      worker.why.empty() ? "it cannot go on with another's answer, or failed this request" : worker.why);
}

}  // namespace shoal::gateway
