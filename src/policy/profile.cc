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

TextSize TextSize::of(std::string_view text) {
  constexpr std::size_t kMostCounted = 16 * 1024;
  enum class Kind : std::uint8_t { kNone, kBlank, kWord, kDigit, kOther };
  const auto kind_of = [](unsigned char c) {
    if (c >= 0x80 || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return Kind::kWord;
    if (c >= '0' && c <= '9') return Kind::kDigit;
    return c == ' ' || (c >= '\t' && c <= '\r') ? Kind::kBlank : Kind::kOther;
  };
  TextSize size{static_cast<std::int64_t>(text.size()), 0};
  const std::string_view counted = text.substr(0, kMostCounted);
  Kind before = Kind::kNone;
  for (const char c : counted) {
    const Kind kind = kind_of(static_cast<unsigned char>(c));
    // A blank goes with what follows it; a line's end stands for itself.
    const bool begins = kind == Kind::kDigit || (kind == Kind::kBlank ? c == '\n' : kind != before);
    size.pieces += begins ? 1 : 0;
    before = kind;
  }
  if (!counted.empty()) size.pieces *= static_cast<double>(text.size()) / static_cast<double>(counted.size());
  return size;
}

TextSize& TextSize::operator+=(const TextSize& other) {
  bytes += other.bytes;
  pieces += other.pieces;
  return *this;
}

double InputTokens::estimate(const TextSize& text) const {
  return std::max(1.0, terms_[0] + terms_[1] * text.pieces + terms_[2] * static_cast<double>(text.bytes));
}

void InputTokens::learn(const TextSize& text, std::int64_t tokens) {
  if (text.bytes <= 0 || tokens <= 0) return;
  // Errors count relative to the tokens, so that one long text does not outvote a hundred short ones.
  const double weight = 1 / static_cast<double>(tokens);
  const Terms x{weight, weight * text.pieces, weight * static_cast<double>(text.bytes)};
  for (std::size_t i = 0; i < kTerms; ++i) {
    for (std::size_t j = 0; j < kTerms; ++j) a_[i][j] = kForget * a_[i][j] + x[i] * x[j];
    b_[i] = kForget * b_[i] + x[i];
  }
  solve(x);
}

// Coordinate descent from the last solution: no term falls below 0, for neither a template nor a byte takes
// tokens away. The prior holds terms where texts do not differ in them: no overhead, nothing for pieces,
// kFirstPerByte.
void InputTokens::solve(const Terms& scale) {
  constexpr int kSweeps = 30;
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (std::size_t i = 0; i < kTerms; ++i) {
      const double prior = kPrior * (i == 0 ? a_[0][0] : scale[i] * scale[i]);
      double rest = b_[i] + (i == 2 ? prior * kFirstPerByte : 0);
      for (std::size_t j = 0; j < kTerms; ++j) rest -= i == j ? 0 : a_[i][j] * terms_[j];
      const double whole = a_[i][i] + prior;
      if (whole > 0) terms_[i] = std::max(0.0, rest / whole);
    }
  }
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
  const double text = size.text.bytes == 0 ? 0
                      : whole != nullptr   ? whole->input.estimate(size.text)
                                           : InputTokens().estimate(size.text);
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
  if (size.text.bytes > 0 && size.token_ids == 0) whole.input.learn(size.text, input_tokens);
  whole.output.learn(output_tokens);
  take(member_key(group, member)).output.learn(output_tokens);
}

}  // namespace shoal::policy
