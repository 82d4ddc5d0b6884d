// Engines over several ranks: every layout gives one rank's answers, also where a rank is lost meanwhile, and
// such a loss leaves nothing held.

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "engine_rig.h"
#include "thread_launcher.h"

namespace shoal::engine {
namespace {

bool same_bits(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  if (a.size() != b.size() || a.empty()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size() || std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0)
      return false;
  }
  return true;
}

EngineOptions ranks_options(Degrees degrees, const std::shared_ptr<RankLauncher>& launcher) {
  EngineOptions options = strict_options();
  options.threads = 1;
  options.degrees = degrees;
  options.launcher = launcher;
  options.build = "test";
  return options;
}

struct Answers {
  std::vector<std::vector<std::vector<float>>> logits;  // by request
  std::vector<std::vector<TokenId>> ids;
  std::vector<float> logprobs;
};

// Several at once, a warm prefix, sampling of every kind, more requests than rows.
Answers answers_of(Engine& engine, LogitsRecord& record) {
  Answers answers;
  std::vector<GenerateRequest> requests;
  for (std::size_t i = 0; i < 9; ++i) {
    GenerateRequest request =
        request_of(prompt_of(1 + i * 23, i % 3), 12 + static_cast<std::int32_t>(i), 100 + i);
    request.sampling.temperature = i % 3 == 0 ? 0.0F : 0.9F;
    if (i % 4 == 1) request.sampling.top_p = 0.8F;
    if (i % 4 == 2) request.sampling.repetition_penalty = 1.3F;
    if (i == 5) request.sampling.logprobs = 3;
    requests.push_back(std::move(request));
  }
  requests.push_back(requests[6]);
  requests.back().sampling.seed = 200;
  std::vector<Client> clients(requests.size());
  for (std::size_t i = 0; i + 1 < requests.size(); ++i)
    EXPECT_TRUE(engine.submit(requests[i], clients[i].sink()).ok());
  for (std::size_t i = 0; i + 1 < requests.size(); ++i) EXPECT_TRUE(clients[i].wait());
  EXPECT_TRUE(engine.submit(requests.back(), clients.back().sink()).ok());
  EXPECT_TRUE(clients.back().wait());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(clients[i].error.ok()) << clients[i].error.message();
    answers.logits.push_back(record.rows(requests[i].sampling.seed));
    answers.ids.push_back(clients[i].ids());
  }
  for (const TokenOutput& token : clients[5].tokens[0]) answers.logprobs.push_back(token.logprob);
  return answers;
}

class EngineLayouts : public testing::TestWithParam<Degrees> {};

TEST_P(EngineLayouts, AnswerAsOneRankDoes) {
  SHOAL_NEEDS_STORIES();
  const Degrees degrees = GetParam();
  LogitsRecord alone_record;
  EngineOptions alone_options = strict_options();
  alone_options.logits_observer = alone_record.observer();
  const Answers alone = answers_of(*start(alone_options), alone_record);

  LogitsRecord record;
  // Each rank of the last stage sees its part of the vocabulary.
  auto launcher = std::make_shared<ThreadLauncher>("test", record.observer());
  {
    EngineOptions options = ranks_options(degrees, launcher);
    options.logits_observer = record.observer();
    auto engine = start(options);
    ASSERT_NE(engine, nullptr);
    const Answers ranks = answers_of(*engine, record);
    EXPECT_EQ(ranks.ids, alone.ids);
    EXPECT_EQ(ranks.logprobs, alone.logprobs);
    for (std::size_t i = 0; i < alone.logits.size(); ++i)
      EXPECT_TRUE(same_bits(ranks.logits[i], alone.logits[i])) << "request " << i;
    expect_pages_back(*engine);
  }
  for (const std::string& end : launcher->ends()) EXPECT_EQ(end, "stopped");
}

INSTANTIATE_TEST_SUITE_P(Degrees, EngineLayouts,
                         testing::Values(Degrees{.tp = 2}, Degrees{.tp = 3}, Degrees{.pp = 2},
                                         Degrees{.pp = 3}, Degrees{.tp = 2, .pp = 2}, Degrees{.cp = 2}),
                         [](const auto& info) {
                           return "tp" + std::to_string(info.param.tp) + "_pp" +
                                  std::to_string(info.param.pp) + "_cp" + std::to_string(info.param.cp);
                         });

// The refusal's sentence.
std::string refusal(EngineOptions options) {
  set_log_level(LogLevel::kError);
  auto engine = Engine::start(std::move(options));
  EXPECT_FALSE(engine.ok());
  return engine.ok() ? "" : engine.error().message();
}

TEST(EngineRanks, AnotherBuildIsRefused) {
  SHOAL_NEEDS_STORIES();
  EXPECT_EQ(refusal(ranks_options({.tp = 2}, std::make_shared<ThreadLauncher>("other"))),
            "a rank of build other cannot join a head of build test: install the same");
}

TEST(EngineRanks, AnImpossibleLayoutIsOneSentence) {
  SHOAL_NEEDS_STORIES();
  EXPECT_EQ(refusal(ranks_options({.tp = 9}, std::make_shared<ThreadLauncher>())),
            "tp 9: the attention output can be cut into 8 parts only; the nearest degree is tp 8");
  EngineOptions options = ranks_options({.pp = 2}, std::make_shared<ThreadLauncher>());
  options.stage_layers = {4, 4};
  EXPECT_EQ(refusal(options).find("--layers 4,4 does not deal the model's 5 layers to 2 stages"), 0U);
}

// Garbage and strangers at the head's port harm nobody.
TEST(EngineRanks, StrangersAreTurnedAway) {
  SHOAL_NEEDS_STORIES();
  auto launcher = std::make_shared<ThreadLauncher>();
  auto engine = start(ranks_options({.tp = 2}, launcher));
  ASSERT_NE(engine, nullptr);
  const auto soon = [] { return now() + std::chrono::seconds(20); };
  const auto connect = [&] { return *comm::connect_to(launcher->head(), soon()); };
  comm::Socket garbage = connect();
  ASSERT_TRUE(garbage.send(std::as_bytes(std::span("GET / HTTP/1.1\r\nHost: head\r\n\r\n")), soon()).ok());
  std::byte byte{};
  EXPECT_EQ(garbage.receive(std::span(&byte, 1), soon()).code(), ErrorCode::kUnavailable);
  comm::Socket stranger = connect();
  EXPECT_FALSE(
      comm::open_as_caller(stranger, *wire::ClusterToken::draw(), wire::LinkPurpose::kControl, soon()).ok());
  JoinOptions second;
  second.head = launcher->head();
  second.rank = 1;
  second.build = "test";
  second.host = comm::host_identity();
  EXPECT_EQ(run_joined_rank(second, launcher->token()).error().message(),
            "rank 1 has joined already: two ranks have one number");
  second.rank = 7;
  EXPECT_EQ(run_joined_rank(second, launcher->token()).error().message(),
            "there is no rank 7 to join as: the layout tp2 pp1 cp1 dp1 ep1 has ranks 1 to 1");
  second.build = "older";
  EXPECT_EQ(run_joined_rank(second, launcher->token()).error().message(),
            "a rank of build older cannot join a head of build test: install the same");
  Client client;
  ASSERT_TRUE(engine->submit(request_of(prompt_of(20, 1), 10), client.sink()).ok());
  ASSERT_TRUE(client.wait());
  EXPECT_TRUE(client.error.ok());
}

// Carriers over TCP, and sums in memory where a group is on one host: the same bits.
TEST(EngineRanks, RanksOfSeveralHostsAnswerAsOneDoes) {
  SHOAL_NEEDS_STORIES();
  LogitsRecord alone_record;
  const Answers alone = answers_of(*start(strict_options()), alone_record);
  // Each rank a host of its own; or ranks 1 and 3 on one, 0 and 2 on others.
  for (const auto& [degrees, hosts] : {std::pair{Degrees{.tp = 3}, 3},
                                       {Degrees{.pp = 3}, 3},
                                       {Degrees{.tp = 2, .pp = 2}, 4},
                                       {Degrees{.tp = 2, .pp = 2}, 2}}) {
    auto launcher = std::make_shared<ThreadLauncher>();
    launcher->pretend_hosts("elsewhere", hosts);
    LogitsRecord record;
    EngineOptions options = ranks_options(degrees, launcher);
    options.joining.listen = {"127.0.0.1", 0};
    options.joining.local_ranks = degrees.tp * degrees.pp;
    auto engine = start(options);
    ASSERT_NE(engine, nullptr);
    const Answers ranks = answers_of(*engine, record);
    EXPECT_EQ(ranks.ids, alone.ids);
    EXPECT_EQ(ranks.logprobs, alone.logprobs);
    // Answers end while others begin: plans in which no sequence goes on.
    std::vector<Client> brief(24);
    for (std::size_t i = 0; i < brief.size(); ++i) {
      const auto tokens = static_cast<std::int32_t>(1 + i % 3);
      ASSERT_TRUE(engine->submit(request_of(prompt_of(40, i), tokens, i), brief[i].sink()).ok());
    }
    for (Client& client : brief) {
      ASSERT_TRUE(client.wait());
      EXPECT_TRUE(client.error.ok()) << client.error.message();
    }
    const WorkerReport report = engine->worker();
    const auto network = static_cast<std::size_t>(comm::Scope::kNetwork);
    const auto purpose = static_cast<std::size_t>(degrees.tp > 1 ? comm::Purpose::kTp : comm::Purpose::kPp);
    EXPECT_GT(report.ranks[0].traffic[purpose].wire[network], 0U);
    expect_pages_back(*engine);
  }
}

// Until the condition holds; false after a minute.
template <typename F>
bool eventually(F&& condition) {
  for (const TimePoint deadline = now() + std::chrono::seconds(60); now() < deadline;) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

// A rank fails in the middle of a pass: what ran is computed again in the next epoch, and goes on where it
// was.
TEST(EngineRanks, WhatALostRankWasRunningIsComputedAgain) {
  SHOAL_NEEDS_STORIES();
  const auto request = [](std::size_t i) {
    GenerateRequest made = request_of(prompt_of(20 + 30 * i, i), 40, i);
    made.n = i == 2 ? 3 : 1;
    made.sampling.temperature = 0.9F;
    made.sampling.logprobs = 2;
    if (i == 1) made.sampling.repetition_penalty = 1.3F;
    if (i == 3) made.prompt_logprobs = 1;
    return made;
  };
  const auto ask = [&](Engine& engine, std::vector<Client>& clients) {
    for (std::size_t i = 0; i < clients.size(); ++i)
      ASSERT_TRUE(engine.submit(request(i), clients[i].sink()).ok());
    for (Client& client : clients) {
      ASSERT_TRUE(client.wait());
      EXPECT_TRUE(client.error.ok()) << client.error.message();
    }
  };
  std::vector<Client> alone(4);
  ask(*start(strict_options()), alone);
  // Of the rows sampled by all: in the first prompts, in the midst of the answers.
  for (const int lost_at : {2, 60}) {
    for (const Degrees degrees : {Degrees{.tp = 2}, Degrees{.pp = 2}}) {
      std::atomic<int> rows = 0;
      const LogitsObserver fails = [&](const SamplingParams&, std::uint64_t, TokenId,
                                       std::span<const float>) {
        if (++rows == lost_at) throw std::runtime_error("out of luck");
      };
      auto launcher = std::make_shared<ThreadLauncher>("test", fails);
      EngineOptions options = ranks_options(degrees, launcher);
      options.logits_observer = fails;
      auto engine = start(options);
      ASSERT_NE(engine, nullptr);
      std::vector<Client> clients(alone.size());
      ask(*engine, clients);
      EXPECT_EQ(engine->worker().epoch, Epoch(2));
      for (std::size_t i = 0; i < clients.size(); ++i) {
        SCOPED_TRACE(testing::Message() << "lost at row " << lost_at << ", request " << i);
        EXPECT_EQ(clients[i].text, alone[i].text);
        for (std::int32_t choice = 0; choice < (i == 2 ? 3 : 1); ++choice)
          EXPECT_EQ(clients[i].ids(choice), alone[i].ids(choice));
        EXPECT_EQ(clients[i].usage.completion_tokens, alone[i].usage.completion_tokens);
        EXPECT_EQ(clients[i].usage.prompt_tokens, alone[i].usage.prompt_tokens);
        ASSERT_EQ(clients[i].prompt_logprobs.size(), alone[i].prompt_logprobs.size());
        for (std::size_t at = 0; at < alone[i].prompt_logprobs.size(); ++at)
          EXPECT_EQ(clients[i].prompt_logprobs[at].logprob, alone[i].prompt_logprobs[at].logprob);
      }
      expect_pages_back(*engine);
    }
  }
}

// Whose fault it may be is not tried for ever.
TEST(EngineRanks, ARequestThatLosesRankAfterRankEnds) {
  SHOAL_NEEDS_STORIES();
  const LogitsObserver fails = [](const SamplingParams& sampling, std::uint64_t index, TokenId,
                                  std::span<const float>) {
    if (sampling.seed == 666 && index == 3) throw std::runtime_error("out of luck");
  };
  EngineOptions options = ranks_options({.tp = 2}, std::make_shared<ThreadLauncher>("test"));
  options.logits_observer = fails;
  auto engine = start(options);
  ASSERT_NE(engine, nullptr);
  Client client, bystander;
  ASSERT_TRUE(engine->submit(request_of(prompt_of(20, 1), 50, 666), client.sink()).ok());
  ASSERT_TRUE(client.wait());
  EXPECT_EQ(client.error.code(), ErrorCode::kUnavailable);
  EXPECT_NE(client.error.message().find("out of luck"), std::string::npos) << client.error.message();
  EXPECT_EQ(client.ids().size(), 3U) << "each token once";
  ASSERT_TRUE(
      eventually([&] { return engine->worker().epoch == Epoch(4) && engine->worker().lost.empty(); }));
  ASSERT_TRUE(engine->submit(request_of(prompt_of(20, 1), 5), bystander.sink()).ok());
  ASSERT_TRUE(bystander.wait());
  EXPECT_TRUE(bystander.error.ok()) << bystander.error.message();
  expect_pages_back(*engine);
}

// A rank that fails in the middle of a pass ends what has somewhere else to go with its sentence; then the
// next epoch answers as the first would have.
TEST(EngineRanks, AfterARankHasFailedTheNextEpochServes) {
  SHOAL_NEEDS_STORIES();
  for (const Degrees degrees : {Degrees{.tp = 2}, Degrees{.pp = 2}, Degrees{.cp = 2}}) {
    std::atomic<int> rows = 0;
    // Only the sampling rank observes: the head with tp, rank 1 with pp.
    const LogitsObserver fails = [&rows](const SamplingParams&, std::uint64_t, TokenId,
                                         std::span<const float>) {
      if (++rows == 5) throw std::runtime_error("out of luck");
    };
    auto launcher = std::make_shared<ThreadLauncher>("test", degrees.pp > 1 ? fails : LogitsObserver{});
    {
      EngineOptions options = ranks_options(degrees, launcher);
      if (degrees.pp == 1) options.logits_observer = fails;
      options.cp_force = degrees.cp;
      auto engine = start(options);
      ASSERT_NE(engine, nullptr);
      std::vector<Client> clients(3);
      for (std::size_t i = 0; i < clients.size(); ++i) {
        GenerateRequest request = request_of(prompt_of(20, i), 50, i);
        request.outlives_ranks = false;
        ASSERT_TRUE(engine->submit(std::move(request), clients[i].sink()).ok());
      }
      for (Client& client : clients) {
        ASSERT_TRUE(client.wait());
        EXPECT_EQ(client.error.code(), ErrorCode::kUnavailable);
        EXPECT_NE(client.error.message().find("out of luck"), std::string::npos) << client.error.message();
      }
      ASSERT_TRUE(
          eventually([&] { return engine->worker().epoch == Epoch(2) && engine->worker().lost.empty(); }));
      expect_pages_back(*engine);
      Client again;
      ASSERT_TRUE(engine->submit(request_of(prompt_of(20, 1), 5), again.sink()).ok());
      ASSERT_TRUE(again.wait());
      EXPECT_TRUE(again.error.ok()) << again.error.message();
      EXPECT_EQ(again.ids().size(), 5U);
      expect_pages_back(*engine);
    }
    EXPECT_EQ(launcher->ends(), (std::vector<std::string>{"stopped"}));
  }
}

}  // namespace
}  // namespace shoal::engine
