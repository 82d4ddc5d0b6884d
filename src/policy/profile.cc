#include "policy/profile.h"

#include <algorithm>
#include <cmath>

namespace shoal::policy {
namespace {

// 0.98: an observation counts half after 34 more.
constexpr double kForget = 0.98;
constexpr double kFirstOutput = 256;
// Of one observation's weight: holds the terms at their first values until texts of different lengths came.
constexpr double kPrior = 0.05;
constexpr double kFirstPerByte = 0.25;

std::string member_key(std::string_view group, std::string_view member) {
  std::string key(group);
  key.push_back('\n');
  key += member;
  return key;
}

}  // namespace

const char* name_of(RequestClass request_class) {
  switch (request_class) {
    case RequestClass::kChat:
      return "chat";
    case RequestClass::kRetrieval:
      return "retrieval";
    case RequestClass::kGeneration:
      return "generation";
    case RequestClass::kAnalysis:
      return "analysis";
  }
  return "chat";
}

RequestClass classify(double input_tokens, double output_tokens, const ClassLimits& limits) {
  const bool long_input = input_tokens >= limits.long_input;
  const bool long_output = output_tokens >= limits.long_output;
  if (long_input) return long_output ? RequestClass::kAnalysis : RequestClass::kRetrieval;
  return long_output ? RequestClass::kGeneration : RequestClass::kChat;
}

double InputTokens::estimate(std::int64_t bytes) const {
  return std::max(1.0, overhead_ + per_byte_ * static_cast<double>(bytes));
}

double InputTokens::bytes_per_token() const { return 1 / per_byte_; }

void InputTokens::learn(std::int64_t bytes, std::int64_t tokens) {
  if (bytes <= 0 || tokens <= 0) return;
  // Errors count relative to the tokens, so that one long text does not outvote a hundred short ones.
  const double one = 1 / static_cast<double>(tokens);
  const double x = static_cast<double>(bytes) / static_cast<double>(tokens);
  a00_ = kForget * a00_ + one * one;
  a01_ = kForget * a01_ + one * x;
  a11_ = kForget * a11_ + x * x;
  b0_ = kForget * b0_ + one;
  b1_ = kForget * b1_ + x;
  // The prior: an overhead of 0, on the scale of the texts seen, and kFirstPerByte.
  const double a00 = a00_ * (1 + kPrior);
  const double a11 = a11_ + kPrior * x * x;
  const double b1 = b1_ + kPrior * x * x * kFirstPerByte;
  const double determinant = a00 * a11 - a01_ * a01_;
  if (!(determinant > 1e-12 * a00 * a11)) return;
  const double overhead = (b0_ * a11 - b1 * a01_) / determinant;
  // A template never takes tokens away.
  overhead_ = std::max(0.0, overhead);
  const double per_byte = overhead >= 0 ? (a00 * b1 - a01_ * b0_) / determinant : b1 / a11;
  per_byte_ = std::clamp(per_byte, 1e-4, 4.0);
}

void OutputTokens::learn(std::int64_t tokens) {
  if (tokens < 0) return;
  if (recent_.size() < kKept) {
    recent_.push_back(tokens);
  } else {
    sorted_.erase(std::ranges::lower_bound(sorted_, recent_[next_]));
    recent_[next_] = tokens;
    next_ = (next_ + 1) % kKept;
  }
  sorted_.insert(std::ranges::upper_bound(sorted_, tokens), tokens);
}

std::optional<double> OutputTokens::quantile(double share) const {
  if (sorted_.size() < kEnough) return std::nullopt;
  const auto rank = static_cast<std::size_t>(share * static_cast<double>(sorted_.size()));
  return static_cast<double>(sorted_[std::min(rank, sorted_.size() - 1)]);
}

Profiler::Entry* Profiler::find(std::string_view key) {
  const auto it = by_key_.find(key);
  if (it == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, it->second);
  return &*it->second;
}

Profiler::Entry& Profiler::take(std::string_view key) {
  if (Entry* known = find(key)) return *known;
  if (entries_.size() >= kMostKeys) {
    by_key_.erase(entries_.back().key);
    entries_.pop_back();
  }
  entries_.push_front({std::string(key), {}, {}});
  by_key_.emplace(entries_.front().key, entries_.begin());
  return entries_.front();
}

Profile Profiler::profile(std::string_view group, std::string_view member, const RequestSize& size) {
  const Entry* whole = find(group);
  const Entry* part = find(member_key(group, member));
  Profile profile;
  const double text = size.text_bytes == 0 ? 0
                      : whole != nullptr   ? whole->input.estimate(size.text_bytes)
                                           : InputTokens().estimate(size.text_bytes);
  profile.input_tokens = std::max(1.0, text + static_cast<double>(size.token_ids));
  const double most =
      size.max_tokens ? static_cast<double>(std::max<std::int64_t>(1, *size.max_tokens)) : 1e9;
  const auto output = [&](double share) {
    std::optional<double> expected;
    if (part != nullptr) expected = part->output.quantile(share);
    if (!expected && whole != nullptr) expected = whole->output.quantile(share);
    return std::clamp(expected.value_or(kFirstOutput), 1.0, most);
  };
  profile.output_p50 = output(0.5);
  profile.output_p90 = output(0.9);
  profile.request_class = classify(profile.input_tokens, profile.output_p50, limits_);
  return profile;
}

void Profiler::learn(std::string_view group, std::string_view member, const RequestSize& size,
                     std::int64_t input_tokens, std::int64_t output_tokens) {
  Entry& whole = take(group);
  if (size.text_bytes > 0 && size.token_ids == 0) whole.input.learn(size.text_bytes, input_tokens);
  whole.output.learn(output_tokens);
  take(member_key(group, member)).output.learn(output_tokens);
}

}  // namespace shoal::policy
