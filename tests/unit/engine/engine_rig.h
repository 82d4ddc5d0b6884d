// Real engines on a tiny real model, and what a client of them sees.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/log.h"
#include "engine/engine.h"
#include "material.h"

namespace shoal::engine {

inline std::filesystem::path stories() {
  return testing_material::shared() / "models/stories260k/stories260K-f32.gguf";
}

// Gathers the events of one request.
class Client {
 public:
  OutputSink sink() {
    return [this](OutputEvent&& event) {
      const std::lock_guard lock(mutex_);
      EXPECT_FALSE(ended_) << "an event after the last";
      text[event.choice] += event.text;
      for (TokenOutput& token : event.tokens) tokens[event.choice].push_back(std::move(token));
      for (PromptLogprobs& each : event.prompt_logprobs) prompt_logprobs.push_back(std::move(each));
      if (event.finish) {
        finish[event.choice] = *event.finish;
        matched[event.choice] = event.matched_stop;
      }
      ++events_;
      if (event.last) {
        usage = event.usage;
        error = event.error;
        ended_ = true;
      }
      // Under the lock: the client may go as soon as it has seen the last event.
      changed_.notify_all();
    };
  }
  // False where the last event did not come in time.
  bool wait(std::chrono::seconds patience = std::chrono::seconds(120)) {
    return wait_for([](const Client& c) { return c.ended_; }, patience);
  }
  bool wait_for_events(int n) {
    return wait_for([n](const Client& c) { return c.ended_ || c.events_ >= n; });
  }
  std::vector<TokenId> ids(std::int32_t choice = 0) const {
    std::vector<TokenId> all;
    if (const auto it = tokens.find(choice); it != tokens.end()) {
      for (const TokenOutput& token : it->second) all.push_back(token.id);
    }
    return all;
  }

  std::map<std::int32_t, std::string> text;
  std::map<std::int32_t, std::vector<TokenOutput>> tokens;
  std::map<std::int32_t, FinishReason> finish;
  std::map<std::int32_t, std::string> matched;
  std::vector<PromptLogprobs> prompt_logprobs;
  Usage usage;
  Status error;

 private:
  template <typename F>
  bool wait_for(F&& f, std::chrono::seconds patience = std::chrono::seconds(120)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, [&] { return f(*this); });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int events_ = 0;
  bool ended_ = false;
};

// The logits of every sampled row by (seed, choice, output index), as the model gave them.
class LogitsRecord {
 public:
  LogitsObserver observer() {
    // Ranks bring their parts in any order.
    return [this](const SamplingParams& sampling, std::uint64_t index, TokenId first,
                  std::span<const float> logits) {
      const std::lock_guard lock(mutex_);
      std::vector<float>& row = rows_[{sampling.seed, sampling.choice, index}];
      row.resize(std::max(row.size(), static_cast<std::size_t>(first) + logits.size()));
      std::copy(logits.begin(), logits.end(), row.begin() + first);
    };
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    rows_.clear();
  }
  // Rows of one request, by choice and index.
  std::vector<std::vector<float>> rows(std::uint64_t seed) const {
    const std::lock_guard lock(mutex_);
    std::vector<std::vector<float>> rows;
    for (const auto& [key, row] : rows_) {
      if (std::get<0>(key) == seed) rows.push_back(row);
    }
    return rows;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::tuple<std::uint64_t, std::uint32_t, std::uint64_t>, std::vector<float>> rows_;
};

inline EngineOptions strict_options() {
  EngineOptions options;
  options.model = stories();
  options.threads = 2;
  options.deterministic = true;
  options.kv_pages = 256;
  options.max_sequences = 16;
  return options;
}

inline std::unique_ptr<Engine> start(EngineOptions options) {
  set_log_level(LogLevel::kError);
  auto engine = Engine::start(std::move(options));
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return engine.ok() ? std::move(*engine) : nullptr;
}

inline GenerateRequest request_of(std::vector<TokenId> prompt, std::int32_t max_tokens,
                                  std::uint64_t seed = 1) {
  GenerateRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  request.sampling.seed = seed;
  return request;
}

// Ids that are in every small vocabulary.
inline std::vector<TokenId> prompt_of(std::size_t length, std::size_t seed) {
  std::vector<TokenId> prompt = {1};
  for (std::size_t i = 1; i < length; ++i)
    prompt.push_back(static_cast<TokenId>(259 + (i * 37 + i * i * (seed + 3) + seed * 11) % 240));
  return prompt;
}

// free + cached == capacity, once the plans in flight are answered.
inline void expect_pages_back(Engine& engine) {
  ASSERT_TRUE(engine.flush_cache().ok());
  for (const KvGroupStats& kv : engine.stats().kv) {
    EXPECT_EQ(kv.free, kv.capacity);
    EXPECT_EQ(kv.cached + kv.held + kv.fenced, 0);
  }
}

#define SHOAL_NEEDS_STORIES()              \
  if (!std::filesystem::exists(stories())) \
  GTEST_SKIP() << "no shared models at " << testing_material::shared()

}  // namespace shoal::engine
