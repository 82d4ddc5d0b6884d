#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <sstream>

#include "engine_rig.h"

namespace shoal::engine {
namespace {

// The list of numbers under `name` in one line of a reference file.
template <typename T>
std::vector<T> list_in(const std::string& line, const std::string& name) {
  std::vector<T> ids;
  const auto at = line.find("\"" + name + "\": [");
  if (at == std::string::npos) return ids;
  const auto begin = line.find('[', at) + 1;
  std::istringstream list(line.substr(begin, line.find(']', begin) - begin));
  for (std::string each; std::getline(list, each, ',');) ids.push_back(static_cast<T>(std::stod(each)));
  return ids;
}

TEST(Engine, GreedyAnswersAreTheReferences) {
  SHOAL_NEEDS_STORIES();
  EngineOptions options = strict_options();
  options.kv_dtype = KvDType::kF32;
  options.activations = kernels::Activations::kF32;
  auto engine = start(options);
  std::ifstream file(stories().parent_path() / "reference.jsonl");
  int compared = 0;
  for (std::string line; std::getline(file, line);) {
    const auto prompt = list_in<TokenId>(line, "prompt_ids");
    const auto greedy = list_in<TokenId>(line, "greedy_ids");
    if (prompt.empty() || greedy.empty()) continue;
    GenerateRequest request = request_of(prompt, static_cast<std::int32_t>(greedy.size()));
    request.sampling.temperature = 0;
    request.prompt_logprobs = 0;
    Client client;
    ASSERT_TRUE(engine->submit(request, client.sink()).ok());
    ASSERT_TRUE(client.wait());
    EXPECT_EQ(client.ids(), greedy);
    const auto nll = list_in<double>(line, "prompt_nll");
    ASSERT_EQ(client.prompt_logprobs.size(), prompt.size() - 1);
    for (std::size_t i = 0; i < nll.size(); ++i)
      EXPECT_NEAR(-client.prompt_logprobs[i].logprob, nll[i], 2e-3);
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

TEST(Engine, LogprobsAreADistribution) {
  SHOAL_NEEDS_STORIES();
  auto engine = start(strict_options());
  GenerateRequest request = request_of(prompt_of(20, 1), 12);
  request.sampling.logprobs = 128;
  Client client;
  ASSERT_TRUE(engine->submit(request, client.sink()).ok());
  ASSERT_TRUE(client.wait());
  ASSERT_EQ(client.tokens[0].size(), 12U);
  for (const TokenOutput& token : client.tokens[0]) {
    ASSERT_EQ(token.top.size(), 128U);
    double mass = 0;
    for (const TokenLogprob& each : token.top) {
      mass += std::exp(each.logprob);
      if (each.id == token.id) {
        EXPECT_EQ(each.logprob, token.logprob);
      }
    }
    EXPECT_LE(mass, 1.0001);
    EXPECT_GT(mass, 0.8);
    EXPECT_TRUE(std::ranges::is_sorted(token.top, std::greater{}, &TokenLogprob::logprob));
  }
}

TEST(Engine, ChoicesDifferAndComeAgainWithTheSameSeed) {
  SHOAL_NEEDS_STORIES();
  auto engine = start(strict_options());
  GenerateRequest request = request_of(prompt_of(50, 2), 20, 42);
  request.n = 3;
  Client first, second;
  ASSERT_TRUE(engine->submit(request, first.sink()).ok());
  ASSERT_TRUE(first.wait());
  ASSERT_TRUE(engine->submit(request, second.sink()).ok());
  ASSERT_TRUE(second.wait());
  EXPECT_NE(first.ids(0), first.ids(1));
  EXPECT_NE(first.ids(1), first.ids(2));
  for (std::int32_t choice = 0; choice < 3; ++choice) EXPECT_EQ(first.ids(choice), second.ids(choice));
  EXPECT_EQ(first.usage.completion_tokens, 60);
  EXPECT_EQ(second.usage.cached_tokens, 32);
}

TEST(Engine, StopStringsCutTheText) {
  SHOAL_NEEDS_STORIES();
  auto engine = start(strict_options());
  GenerateRequest request = request_of({1, 403, 407, 261, 378}, 60);
  request.sampling.temperature = 0;
  Client whole, cut;
  ASSERT_TRUE(engine->submit(request, whole.sink()).ok());
  ASSERT_TRUE(whole.wait());
  const std::string text = whole.text[0];
  ASSERT_GT(text.size(), 60U);
  const std::string stop = text.substr(37, 9);  // several tokens
  request.stop = {stop};
  ASSERT_TRUE(engine->submit(request, cut.sink()).ok());
  ASSERT_TRUE(cut.wait());
  EXPECT_EQ(cut.finish[0], FinishReason::kStop);
  EXPECT_EQ(cut.matched[0], stop);
  EXPECT_EQ(cut.text[0], text.substr(0, text.find(stop)));
}

TEST(Engine, PenaltiesChangeGreedyAnswers) {
  SHOAL_NEEDS_STORIES();
  auto engine = start(strict_options());
  GenerateRequest request = request_of({1, 403, 407, 261, 378}, 80);
  request.sampling.temperature = 0;
  Client plain, penalised;
  ASSERT_TRUE(engine->submit(request, plain.sink()).ok());
  request.sampling.presence_penalty = 100;
  ASSERT_TRUE(engine->submit(request, penalised.sink()).ok());
  ASSERT_TRUE(plain.wait());
  ASSERT_TRUE(penalised.wait());
  // So heavy a penalty lets no id come twice.
  auto ids = penalised.ids();
  std::ranges::sort(ids);
  EXPECT_EQ(std::ranges::adjacent_find(ids), ids.end());
  EXPECT_NE(plain.ids(), penalised.ids());
}

TEST(Engine, TheContextsLimitIsExact) {
  SHOAL_NEEDS_STORIES();
  EngineOptions options = strict_options();
  options.context = 100;
  auto engine = start(options);
  EXPECT_EQ(engine->context(), 100);
  Client longest, beyond;
  ASSERT_TRUE(engine->submit(request_of(prompt_of(99, 1), 50), longest.sink()).ok());
  ASSERT_TRUE(longest.wait());
  EXPECT_EQ(longest.ids().size(), 1U);
  EXPECT_EQ(longest.finish[0], FinishReason::kLength);
  const auto refused = engine->submit(request_of(prompt_of(100, 1), 50), beyond.sink());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kTooLong);
}

TEST(Engine, ASmallPoolLimitsTheContext) {
  SHOAL_NEEDS_STORIES();
  EngineOptions options = strict_options();
  options.kv_pages = 3;
  auto engine = start(options);
  EXPECT_EQ(engine->context(), 96);
  Client client, other;
  EXPECT_EQ(engine->submit(request_of(prompt_of(97, 1), 1), other.sink()).error().code(),
            ErrorCode::kTooLong);
  ASSERT_TRUE(engine->submit(request_of(prompt_of(90, 1), 50), client.sink()).ok());
  ASSERT_TRUE(client.wait());
  EXPECT_EQ(client.ids().size(), 6U);
}

TEST(Engine, RefusesAContextTheModelWasNotMadeFor) {
  SHOAL_NEEDS_STORIES();
  EngineOptions options = strict_options();
  options.context = 100000;
  const auto engine = Engine::start(options);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().field(), "--ctx");
}

TEST(Engine, AMissingModelIsASentence) {
  EngineOptions options;
  options.model = "/nowhere/model.gguf";
  const auto engine = Engine::start(options);
  ASSERT_FALSE(engine.ok());
  EXPECT_NE(engine.error().message().find("/nowhere/model.gguf"), std::string::npos);
}

TEST(Engine, RefusesBeyondTheQueue) {
  SHOAL_NEEDS_STORIES();
  EngineOptions options = strict_options();
  options.max_sequences = 1;
  options.max_queue = 1;
  auto engine = start(options);
  Client running, waiting, refused;
  const auto first = engine->submit(request_of(prompt_of(10, 1), 400), running.sink());
  const auto second = engine->submit(request_of(prompt_of(10, 2), 400), waiting.sink());
  const auto third = engine->submit(request_of(prompt_of(10, 3), 4), refused.sink());
  GenerateRequest never = request_of(prompt_of(10, 3), 4);
  never.n = 3;
  const auto fourth = engine->submit(never, refused.sink());
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_FALSE(third.ok());
  EXPECT_EQ(third.error().code(), ErrorCode::kExhausted);
  ASSERT_FALSE(fourth.ok());
  EXPECT_EQ(fourth.error().code(), ErrorCode::kInvalidArgument) << "waiting would not help";
  EXPECT_EQ(fourth.error().field(), "n");
  EXPECT_TRUE(engine->cancel(*first));
  ASSERT_TRUE(running.wait());
  EXPECT_TRUE(engine->cancel(*second));
  ASSERT_TRUE(waiting.wait());
  EXPECT_FALSE(engine->cancel(*second));
  expect_pages_back(*engine);
}

TEST(Engine, ACancelEndsAStreamAtOnce) {
  SHOAL_NEEDS_STORIES();
  auto engine = start(strict_options());
  GenerateRequest request = request_of(prompt_of(10, 1), 500);
  request.rid = "mine";
  Client client, twin;
  const auto id = engine->submit(request, client.sink());
  ASSERT_TRUE(id.ok());
  EXPECT_EQ(engine->submit(request, twin.sink()).error().field(), "rid");
  ASSERT_TRUE(client.wait_for_events(3));
  EXPECT_TRUE(engine->cancel(*id));
  ASSERT_TRUE(client.wait());
  EXPECT_EQ(client.finish[0], FinishReason::kCancelled);
  EXPECT_LT(client.ids().size(), 500U);
  expect_pages_back(*engine);
}

TEST(Engine, DrainLetsRunningRequestsEndAndTakesNoNewOnes) {
  SHOAL_NEEDS_STORIES();
  auto engine = start(strict_options());
  Client client, late;
  ASSERT_TRUE(engine->submit(request_of(prompt_of(10, 1), 50), client.sink()).ok());
  engine->drain(now() + std::chrono::seconds(60));
  EXPECT_EQ(client.ids().size(), 50U);
  EXPECT_EQ(engine->submit(request_of(prompt_of(10, 1), 50), late.sink()).error().code(),
            ErrorCode::kUnavailable);
}

TEST(Engine, DrainCancelsAtTheDeadline) {
  SHOAL_NEEDS_STORIES();
  auto engine = start(strict_options());
  Client client;
  ASSERT_TRUE(engine->submit(request_of(prompt_of(10, 1), 500), client.sink()).ok());
  engine->drain(now());
  EXPECT_EQ(client.finish[0], FinishReason::kCancelled);
}

TEST(Engine, GoesWithRequestsRunning) {
  SHOAL_NEEDS_STORIES();
  Client client;
  {
    auto engine = start(strict_options());
    ASSERT_TRUE(engine->submit(request_of(prompt_of(300, 1), 200), client.sink()).ok());
  }
  ASSERT_TRUE(client.wait());
  EXPECT_EQ(client.finish[0], FinishReason::kCancelled);
}

TEST(Engine, StatsCountWhatHappened) {
  SHOAL_NEEDS_STORIES();
  auto engine = start(strict_options());
  for (int i = 0; i < 2; ++i) {
    Client client;
    ASSERT_TRUE(engine->submit(request_of(prompt_of(70, 1), 10), client.sink()).ok());
    ASSERT_TRUE(client.wait());
  }
  ASSERT_TRUE(engine->flush_cache().ok());  // what is published now is what has happened
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.waiting, 0);
  EXPECT_EQ(stats.prompt_tokens, 140U);
  EXPECT_EQ(stats.cached_tokens, 64U);
  EXPECT_EQ(stats.generated_tokens, 20U);
  EXPECT_EQ(stats.requests_finished, 2U);
  EXPECT_GT(stats.steps, 20U);
  EXPECT_EQ(stats.histograms.time_to_first_token.count(), 2U);
  EXPECT_EQ(stats.histograms.e2e_latency.count(), 2U);
  EXPECT_EQ(stats.histograms.inter_token_latency.count(), 18U);
  EXPECT_EQ(stats.seconds_since_progress, 0);
}

}  // namespace
}  // namespace shoal::engine
