// Engines whose pool is too small for what they are asked, in strict mode: kept in host memory or computed
// again, on one rank and on several, every answer has the bits of a large pool's, and nothing is left.

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <ostream>
#include <thread>
#include <vector>

#include "engine_rig.h"
#include "exactness_models.h"
#include "thread_launcher.h"

namespace shoal::engine {
namespace {

using Rows = std::vector<std::vector<float>>;

bool same_bits(const Rows& a, const Rows& b) {
  if (a.size() != b.size() || a.empty()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size() || std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0)
      return false;
  }
  return true;
}

std::uint64_t count(const Engine& engine, policy::Retraction way) {
  return engine.stats().retractions[policy::retraction_index(way)];
}

// Six long answers, one of them with choices.
std::vector<GenerateRequest> requests() {
  std::vector<GenerateRequest> all;
  for (std::size_t i = 0; i < 6; ++i) {
    GenerateRequest request =
        request_of(prompt_of(20 + 17 * i, i), 200 - 10 * static_cast<std::int32_t>(i), 500 + i);
    request.sampling.temperature = i % 2 == 0 ? 0.0F : 0.9F;
    if (i == 3) request.sampling.repetition_penalty = 1.3F;
    if (i == 4) request.n = 2;
    all.push_back(std::move(request));
  }
  return all;
}

struct Answers {
  std::vector<Rows> rows;
  std::vector<std::vector<TokenId>> ids;
};

Answers answers_of(Engine& engine, LogitsRecord& record) {
  const std::vector<GenerateRequest> all = requests();
  std::vector<Client> clients(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_TRUE(engine.submit(all[i], clients[i].sink()).ok());
  Answers answers;
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_TRUE(clients[i].wait());
    EXPECT_TRUE(clients[i].error.ok()) << clients[i].error.message();
    answers.rows.push_back(record.rows(all[i].sampling.seed));
    for (std::int32_t choice = 0; choice < all[i].n; ++choice) answers.ids.push_back(clients[i].ids(choice));
  }
  return answers;
}

struct Case {
  const char* name;
  Degrees degrees;
  policy::Retraction way;
  bool windows = false;
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

class EngineRetract : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (GetParam().windows) {
      model_ = small_gemma3(100)(scratch_.path());
    } else {
      SHOAL_NEEDS_STORIES();
      model_ = stories();
    }
  }
  EngineOptions options(LogitsRecord& record) const {
    EngineOptions options = strict_options();
    options.model = model_;
    options.threads = 1;  // many small steps: on a busy machine two would wait for each other
    options.context = 512;
    options.logits_observer = record.observer();
    return options;
  }
  // A pool for about three of the answers.
  EngineOptions small(LogitsRecord& record) {
    const Case& one = GetParam();
    EngineOptions options = this->options(record);
    options.kv_pages = 20 / one.degrees.cp;
    options.offload_bytes = 64 << 20;
    options.retract = one.way;
    options.degrees = one.degrees;
    if (one.degrees.tp * one.degrees.pp * one.degrees.cp > 1) {
      options.build = "test";
      options.launcher = std::make_shared<ThreadLauncher>("test", record.observer());
    }
    return options;
  }

  ScratchFolder scratch_;
  std::filesystem::path model_;
};

TEST_P(EngineRetract, WhoGaveWayAnswersAsInALargePool) {
  LogitsRecord large_record, record;
  Answers large;
  {
    auto engine = start(options(large_record));
    ASSERT_NE(engine, nullptr);
    large = answers_of(*engine, large_record);
    EXPECT_EQ(engine->stats().preemptions, 0U);
  }
  auto engine = start(small(record));
  ASSERT_NE(engine, nullptr);
  const Answers answers = answers_of(*engine, record);
  EXPECT_GT(count(*engine, GetParam().way), 0U);
  EXPECT_EQ(answers.ids, large.ids);
  for (std::size_t i = 0; i < large.rows.size(); ++i)
    EXPECT_TRUE(same_bits(answers.rows[i], large.rows[i])) << i;
  expect_pages_back(*engine);
  EXPECT_EQ(engine->stats().offloaded_bytes, 0);
}

INSTANTIATE_TEST_SUITE_P(Layouts, EngineRetract,
                         testing::Values(Case{"offload", {}, policy::Retraction::kOffload},
                                         Case{"recompute", {}, policy::Retraction::kRecompute},
                                         Case{"windows", {}, policy::Retraction::kOffload, true},
                                         Case{"tp2", {.tp = 2}, policy::Retraction::kOffload},
                                         Case{"pp2", {.pp = 2}, policy::Retraction::kOffload},
                                         Case{"cp2", {.cp = 2}, policy::Retraction::kOffload},
                                         Case{"tp2cp2", {.tp = 2, .cp = 2}, policy::Retraction::kOffload},
                                         Case{"pp2windows", {.pp = 2}, policy::Retraction::kOffload, true}),
                         [](const auto& info) { return info.param.name; });

// Cancelled while it waits in host memory.
TEST(EngineOffload, TheBufferIsFreeOnceNobodyWaits) {
  SHOAL_NEEDS_STORIES();
  EngineOptions options = strict_options();
  options.threads = 1;
  options.kv_pages = 16;
  options.offload_bytes = 64 << 20;
  options.retract = policy::Retraction::kOffload;
  auto engine = start(options);
  std::vector<Client> clients(5);
  for (std::size_t i = 0; i < clients.size(); ++i)
    ASSERT_TRUE(engine->submit(request_of(prompt_of(30, i), 400, i), clients[i].sink()).ok());
  const auto deadline = now() + std::chrono::seconds(60);
  while (engine->stats().offloaded_bytes == 0 && now() < deadline) std::this_thread::yield();
  EXPECT_GT(engine->stats().offloaded_bytes, 0);
  engine->cancel_all();
  for (Client& client : clients) EXPECT_TRUE(client.wait());
  expect_pages_back(*engine);
  EXPECT_EQ(engine->stats().offloaded_bytes, 0);
}

// A rank fails while others' pages are kept: the next epoch computes them again.
TEST(EngineOffload, WhatALostEpochKeptIsComputedAgain) {
  SHOAL_NEEDS_STORIES();
  std::vector<std::vector<TokenId>> alone;
  {
    LogitsRecord record;
    EngineOptions options = strict_options();
    options.threads = 1;
    alone = answers_of(*start(options), record).ids;
  }
  std::atomic<bool> fail = false;
  const LogitsObserver fails = [&](const SamplingParams&, std::uint64_t, TokenId, std::span<const float>) {
    if (fail.exchange(false)) throw std::runtime_error("out of luck");
  };
  EngineOptions options = strict_options();
  options.threads = 1;
  options.kv_pages = 20;
  options.offload_bytes = 64 << 20;
  options.retract = policy::Retraction::kOffload;
  options.degrees = {.tp = 2};
  options.build = "test";
  options.launcher = std::make_shared<ThreadLauncher>("test", fails);
  options.logits_observer = fails;
  auto engine = start(options);
  ASSERT_NE(engine, nullptr);
  const std::vector<GenerateRequest> all = requests();
  std::vector<Client> clients(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) ASSERT_TRUE(engine->submit(all[i], clients[i].sink()).ok());
  const auto deadline = now() + std::chrono::seconds(60);
  while (engine->stats().offloaded_bytes == 0 && now() < deadline) std::this_thread::yield();
  EXPECT_GT(engine->stats().offloaded_bytes, 0);
  fail = true;
  std::vector<std::vector<TokenId>> ids;
  for (std::size_t i = 0; i < all.size(); ++i) {
    ASSERT_TRUE(clients[i].wait());
    EXPECT_TRUE(clients[i].error.ok()) << clients[i].error.message();
    for (std::int32_t choice = 0; choice < all[i].n; ++choice) ids.push_back(clients[i].ids(choice));
  }
  EXPECT_EQ(engine->worker().epoch, Epoch(2));
  EXPECT_EQ(ids, alone);
  expect_pages_back(*engine);
  EXPECT_EQ(engine->stats().offloaded_bytes, 0);
}

}  // namespace
}  // namespace shoal::engine
