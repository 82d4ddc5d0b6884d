// What a request will cost, read off it before any tokenizer has seen it.
//
// Thread-safety: classify() and profile_of() are pure; the estimators belong to one thread.
// Invariants:
//   1. Estimates are finite and at least 1 token; an output never exceeds what the request allows.
//   2. Before anything has been learned a text has a token for every 4 bytes, and answers are as long as they
//      may, up to 256 tokens.
//   3. No estimate falls when a text grows.

#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace shoal::policy {

enum class RequestClass : std::uint8_t { kChat, kRetrieval, kGeneration, kAnalysis };
const char* name_of(RequestClass request_class);

// From where on an input and an output count as long, in tokens.
struct ClassLimits {
  double long_input = 4096;
  double long_output = 512;
};
RequestClass classify(double input_tokens, double output_tokens, const ClassLimits& limits = {});

// A text's length, as bytes and as pieces: words, single digits, runs of other signs. Every tokenizer cuts
// there first; bytes tell how far it must cut on.
struct TextSize {
  std::int64_t bytes = 0;
  double pieces = 0;

  // Counts the first 16 KiB; what follows is taken for more of the same.
  static TextSize of(std::string_view text);
  TextSize& operator+=(const TextSize& other);
};

// What a request says by itself.
struct RequestSize {
  TextSize text;               // of its prompt or its messages
  std::int64_t token_ids = 0;  // of prompts given as ids
  std::int32_t choices = 1;
  std::optional<std::int64_t> max_tokens;  // of each choice
};

struct Profile {
  double input_tokens = 1;
  double cached_tokens = 0;  // of the input, on the worker at hand
  double output_p50 = 1;     // of one choice
  double output_p90 = 1;
  RequestClass request_class = RequestClass::kChat;

  double uncached_tokens() const { return input_tokens > cached_tokens ? input_tokens - cached_tokens : 0; }
};

// Tokens of a text as an overhead (the chat template's own words), so many for each piece and so many for
// each byte, none below 0, learned from requests that were answered: least squares on relative errors with
// forgetting.
class InputTokens {
 public:
  double estimate(const TextSize& text) const;
  void learn(const TextSize& text, std::int64_t tokens);

 private:
  static constexpr std::size_t kTerms = 3;  // overhead, pieces, bytes
  using Terms = std::array<double, kTerms>;
  void solve(const Terms& scale);

  // Normal equations.
  std::array<Terms, kTerms> a_{};
  Terms b_{};
  Terms terms_{0, 0, 0.25};
};

// How long answers turned out: quantiles of the last kKept.
class OutputTokens {
 public:
  static constexpr std::size_t kKept = 512;

  void learn(std::int64_t tokens);
  // share: 0 to 1. Nothing while fewer than kEnough are known.
  static constexpr std::size_t kEnough = 16;
  std::optional<double> quantile(double share) const;
  std::size_t known() const { return sorted_.size(); }

 private:
  std::vector<std::int64_t> recent_;  // ring
  std::size_t next_ = 0;
  std::vector<std::int64_t> sorted_;
};

// Both estimators for each key a gateway tells requests apart by: the model, and the model with route and
// tenant. At most kMostKeys of each, the least recently used goes.
class Profiler {
 public:
  static constexpr std::size_t kMostKeys = 1024;

  explicit Profiler(ClassLimits limits = {}) : limits_(limits) {}

  // group: model and route; member: of it, a tenant. What the member has not taught yet, the group answers.
  Profile profile(std::string_view group, std::string_view member, const RequestSize& size);
  // input_tokens 0: the worker did not say. output_tokens: of each finished choice.
  void learn(std::string_view group, std::string_view member, const RequestSize& size,
             std::int64_t input_tokens, std::int64_t output_tokens);

 private:
  struct Entry {
    std::string key;
    InputTokens input;
    OutputTokens output;
  };
  // What is known under the key, or nothing.
  Entry* find(std::string_view key);
  Entry& take(std::string_view key);

  ClassLimits limits_;
  std::list<Entry> entries_;  // the one used last comes first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_key_;
};

}  // namespace shoal::policy
