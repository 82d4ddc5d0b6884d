#include "policy/pair_table.h"

#include <algorithm>

namespace shoal::policy {
namespace {

// An observation counts half after seven more.
constexpr double kForget = 0.9;
// Beyond, it is not the link that was slow: a worker was stopped or its machine slept.
constexpr double kLongestLink = 30;

double mean(double before, double next) { return kForget * before + (1 - kForget) * next; }

}  // namespace

const PairTable::Pair* PairTable::find(std::uint64_t prefill, std::uint64_t decode) const {
  const auto it = by_key_.find(key(prefill, decode));
  return it == by_key_.end() ? nullptr : &*it->second;
}

PairTable::Pair& PairTable::take(std::uint64_t prefill, std::uint64_t decode) {
  const std::uint64_t name = key(prefill, decode);
  if (const auto it = by_key_.find(name); it != by_key_.end()) {
    pairs_.splice(pairs_.begin(), pairs_, it->second);
    return pairs_.front();
  }
  if (pairs_.size() >= kMost) {
    by_key_.erase(key(pairs_.back().prefill, pairs_.back().decode));
    pairs_.pop_back();
  }
  pairs_.push_front({prefill, decode, Breaker(breaker_), -1});
  by_key_.emplace(name, pairs_.begin());
  return pairs_.front();
}

bool PairTable::passes(std::uint64_t prefill, std::uint64_t decode, TimePoint now) const {
  const Pair* pair = find(prefill, decode);
  return pair == nullptr || pair->breaker.passes(now);
}

double PairTable::link_seconds(std::uint64_t prefill, std::uint64_t decode) const {
  const Pair* pair = find(prefill, decode);
  return pair == nullptr || pair->seconds < 0 ? usual_seconds_.value_or(0) : pair->seconds;
}

void PairTable::sent(std::uint64_t prefill, std::uint64_t decode, TimePoint now) {
  take(prefill, decode).breaker.sent(now);
}

void PairTable::succeeded(std::uint64_t prefill, std::uint64_t decode) {
  take(prefill, decode).breaker.succeeded();
}

bool PairTable::failed(std::uint64_t prefill, std::uint64_t decode, TimePoint now) {
  Breaker& breaker = take(prefill, decode).breaker;
  const bool passed = breaker.passes(now);
  breaker.failed(now);
  return passed && !breaker.passes(now);
}

void PairTable::forgotten(std::uint64_t prefill, std::uint64_t decode) {
  take(prefill, decode).breaker.forgotten();
}

void PairTable::learn_link(std::uint64_t prefill, std::uint64_t decode, double seconds) {
  if (!(seconds >= 0) || seconds > kLongestLink) return;
  Pair& pair = take(prefill, decode);
  pair.seconds = pair.seconds < 0 ? seconds : mean(pair.seconds, seconds);
  usual_seconds_ = usual_seconds_ ? mean(*usual_seconds_, seconds) : seconds;
}

std::size_t PairTable::open(TimePoint now) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(pairs_, [now](const Pair& pair) { return !pair.breaker.passes(now); }));
}

}  // namespace shoal::policy
