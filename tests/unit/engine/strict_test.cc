// Strict mode at the engine: a request's logits have the same bits whatever else happens.

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "engine_rig.h"

namespace shoal::engine {
namespace {

bool same_bits(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size() || std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0)
      return false;
  }
  return true;
}

class StrictMode : public testing::TestWithParam<const char*> {
 protected:
  static constexpr std::uint64_t kSeed = 77;
  static constexpr std::int32_t kTokens = 40;

  void SetUp() override {
    path_ = testing_material::shared() / "models" / GetParam();
    if (!std::filesystem::exists(path_)) GTEST_SKIP() << "no shared models at " << testing_material::shared();
    rows_ = alone(0);
    ASSERT_EQ(rows_.size(), static_cast<std::size_t>(kTokens));
  }

  EngineOptions options(LogitsRecord& record, std::int32_t chunk) const {
    EngineOptions options = strict_options();
    options.model = path_;
    options.prefill_chunk = chunk;
    options.logits_observer = record.observer();
    return options;
  }

  GenerateRequest request() const {
    GenerateRequest request = request_of(prompt_of(150, 5), kTokens, kSeed);
    request.sampling.temperature = 0.8F;
    return request;
  }

  std::vector<std::vector<float>> alone(std::int32_t chunk) {
    LogitsRecord record;
    auto engine = start(options(record, chunk));
    Client client;
    EXPECT_TRUE(engine->submit(request(), client.sink()).ok());
    EXPECT_TRUE(client.wait());
    if (ids_.empty()) ids_ = client.ids();
    EXPECT_EQ(client.ids(), ids_);
    return record.rows(kSeed);
  }

  std::filesystem::path path_;
  std::vector<std::vector<float>> rows_;
  std::vector<TokenId> ids_;
};

TEST_P(StrictMode, ChunksOfThePromptDoNotShow) {
  for (const std::int32_t chunk : {1, 7, 64, 512}) EXPECT_TRUE(same_bits(alone(chunk), rows_)) << chunk;
}

TEST_P(StrictMode, OthersInTheBatchDoNotShow) {
  LogitsRecord record;
  auto engine = start(options(record, 0));
  std::vector<Client> others(8);
  for (std::size_t i = 0; i < others.size(); ++i)
    ASSERT_TRUE(engine->submit(request_of(prompt_of(20 + 30 * i, i), 60, 1000 + i), others[i].sink()).ok());
  Client client;
  ASSERT_TRUE(engine->submit(request(), client.sink()).ok());
  ASSERT_TRUE(client.wait());
  for (Client& other : others) ASSERT_TRUE(other.wait());
  EXPECT_EQ(client.ids(), ids_);
  EXPECT_TRUE(same_bits(record.rows(kSeed), rows_));
}

TEST_P(StrictMode, AWarmPrefixDoesNotShow) {
  LogitsRecord record;
  auto engine = start(options(record, 0));
  GenerateRequest warm = request_of(prompt_of(150, 5), 30, 5);
  warm.prompt.resize(100);
  Client first, client;
  ASSERT_TRUE(engine->submit(warm, first.sink()).ok());
  ASSERT_TRUE(first.wait());
  ASSERT_TRUE(engine->submit(request(), client.sink()).ok());
  ASSERT_TRUE(client.wait());
  EXPECT_EQ(client.usage.cached_tokens, 96);
  EXPECT_TRUE(same_bits(record.rows(kSeed), rows_));
}

TEST_P(StrictMode, PagesThatCameFromDecodeDoNotShow) {
  // A conversation: the second prompt is the first and its answer, whose pages decode steps have written.
  GenerateRequest first = request_of(prompt_of(70, 6), 90, 8);
  Client asked, warm, cold;
  LogitsRecord warm_record, cold_record;
  auto engine = start(options(warm_record, 0));
  ASSERT_TRUE(engine->submit(first, asked.sink()).ok());
  ASSERT_TRUE(asked.wait());
  GenerateRequest second = request();
  second.prompt = first.prompt;
  for (const TokenId id : asked.ids()) second.prompt.push_back(id);
  ASSERT_TRUE(engine->submit(second, warm.sink()).ok());
  ASSERT_TRUE(warm.wait());
  EXPECT_EQ(warm.usage.cached_tokens, 128);
  engine = start(options(cold_record, 0));
  ASSERT_TRUE(engine->submit(second, cold.sink()).ok());
  ASSERT_TRUE(cold.wait());
  EXPECT_EQ(cold.usage.cached_tokens, 0);
  EXPECT_EQ(warm.ids(), cold.ids());
  EXPECT_TRUE(same_bits(warm_record.rows(kSeed), cold_record.rows(kSeed)));
}

TEST_P(StrictMode, PreemptionDoesNotShow) {
  LogitsRecord record;
  EngineOptions small = options(record, 0);
  small.kv_pages = 16;  // the request needs 6, each of the others up to 11
  auto engine = start(small);
  std::vector<Client> others(4);
  for (std::size_t i = 0; i < others.size(); ++i)
    ASSERT_TRUE(engine->submit(request_of(prompt_of(20, i + 20), 330, 1000 + i), others[i].sink()).ok());
  Client client;
  // Long enough to be caught in the middle, and the youngest: it is the one that gives way.
  ASSERT_TRUE(engine->submit(request(), client.sink()).ok());
  ASSERT_TRUE(client.wait());
  for (Client& other : others) ASSERT_TRUE(other.wait());
  EXPECT_GT(engine->stats().preemptions, 0U);
  EXPECT_EQ(client.ids(), ids_);
  EXPECT_TRUE(same_bits(record.rows(kSeed), rows_));
  expect_pages_back(*engine);
}

INSTANTIATE_TEST_SUITE_P(Models, StrictMode,
                         testing::Values("stories260k/stories260K-f32.gguf",
                                         "story-656k/story-656k-q8_0.gguf"));

// Clients on threads of their own, random requests with shared prefixes, aborts, a pool far too small: every
// answer is its serial one, and the pages come back.
TEST(EngineSoak, EveryAnswerIsItsSerialOne) {
  SHOAL_NEEDS_STORIES();
  constexpr std::size_t kKinds = 24;
  std::mt19937 random(5);
  std::vector<GenerateRequest> kinds;
  for (std::size_t i = 0; i < kKinds; ++i) {
    GenerateRequest request =
        request_of(prompt_of(1 + random() % 120, i % 4), 1 + static_cast<std::int32_t>(random() % 60), i);
    for (unsigned tail = random() % 30; tail > 0; --tail)
      request.prompt.push_back(static_cast<TokenId>(3 + random() % 500));
    request.n = i % 7 == 0 ? 2 : 1;
    request.sampling.temperature = i % 3 == 0 ? 0.0F : 0.9F;
    if (i % 5 == 0) request.sampling.top_p = 0.8F;
    if (i % 6 == 0) request.sampling.frequency_penalty = 0.5F;
    if (i % 4 == 0) request.stop = {"the", ". "};
    kinds.push_back(std::move(request));
  }
  std::vector<std::unique_ptr<Client>> serial;
  {
    EngineOptions roomy = strict_options();
    auto engine = start(roomy);
    for (const GenerateRequest& kind : kinds) {
      serial.push_back(std::make_unique<Client>());
      ASSERT_TRUE(engine->submit(kind, serial.back()->sink()).ok());
      ASSERT_TRUE(serial.back()->wait());
      ASSERT_TRUE(engine->flush_cache().ok());
    }
  }
  EngineOptions small = strict_options();
  small.kv_pages = 18;
  small.max_queue = 4;
  auto engine = start(small);
  std::atomic<int> complete{0}, refused{0}, aborted{0};
  std::vector<std::thread> clients;
  for (unsigned c = 0; c < 12; ++c) {
    clients.emplace_back([&, c] {
      std::mt19937 dice(c);
      for (int round = 0; round < 25; ++round) {
        const std::size_t kind = dice() % kKinds;
        Client client;
        const auto id = engine->submit(kinds[kind], client.sink());
        if (!id.ok()) {
          EXPECT_EQ(id.error().code(), ErrorCode::kExhausted) << id.error().message();
          ++refused;
          std::this_thread::yield();
          continue;
        }
        const bool abort = dice() % 5 == 0;
        if (abort) {
          client.wait_for_events(static_cast<int>(dice() % 10));
          engine->cancel(*id);
        }
        ASSERT_TRUE(client.wait());
        if (abort) {
          ++aborted;
          continue;
        }
        ++complete;
        for (std::int32_t choice = 0; choice < kinds[kind].n; ++choice) {
          ASSERT_EQ(client.ids(choice), serial[kind]->ids(choice)) << "kind " << kind;
          ASSERT_EQ(client.text[choice], serial[kind]->text[choice]) << "kind " << kind;
          ASSERT_EQ(client.finish[choice], serial[kind]->finish[choice]);
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_GT(complete, 20);
  EXPECT_GT(aborted, 0);
  expect_pages_back(*engine);
}

}  // namespace
}  // namespace shoal::engine
