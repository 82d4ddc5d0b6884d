// Ranks that reach each other with UCX over an interface named as a fabric: the loopback here, between
// threads that call themselves hosts.

#include <gtest/gtest.h>

#include "comm/ucx_carrier.h"
#include "engine_rig.h"
#include "thread_launcher.h"

namespace shoal::engine {
namespace {

class EngineFabric : public testing::Test {
 protected:
  void SetUp() override {
    if (!comm::UcxCarrier::built()) GTEST_SKIP() << "built without UCX (Debian: libucx-dev)";
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    GTEST_SKIP() << "UCX takes memory and signals in ways that the sanitizers do not know";
#endif
  }
};

EngineOptions on_fabric(Degrees degrees, std::int32_t hosts, const char* interface) {
  auto launcher = std::make_shared<ThreadLauncher>();
  launcher->pretend_hosts("elsewhere", hosts);
  EngineOptions options = strict_options();
  options.threads = 1;
  options.degrees = degrees;
  options.launcher = launcher;
  options.build = "test";
  options.joining.listen = {"127.0.0.1", 0};
  options.joining.local_ranks = degrees.tp * degrees.pp;
  options.joining.fabric = interface;
  return options;
}

std::vector<std::vector<TokenId>> answers_of(Engine& engine) {
  std::vector<Client> clients(8);
  for (std::size_t i = 0; i < clients.size(); ++i) {
    GenerateRequest request = request_of(prompt_of(1 + i * 29, i % 3), 12 + static_cast<std::int32_t>(i), i);
    request.sampling.temperature = i % 2 == 0 ? 0.0F : 0.9F;
    EXPECT_TRUE(engine.submit(request, clients[i].sink()).ok());
  }
  std::vector<std::vector<TokenId>> answers;
  for (Client& client : clients) {
    EXPECT_TRUE(client.wait());
    EXPECT_TRUE(client.error.ok()) << client.error.message();
    answers.push_back(client.ids());
  }
  return answers;
}

TEST_F(EngineFabric, RanksAnswerAsOneDoes) {
  SHOAL_NEEDS_STORIES();
  const auto alone = answers_of(*start(strict_options()));
  // Each rank a host of its own; or ranks 1 and 3 on one, which share memory besides.
  for (const auto& [degrees, hosts] :
       {std::pair{Degrees{.tp = 3}, 3}, {Degrees{.pp = 3}, 3}, {Degrees{.tp = 2, .pp = 2}, 2}}) {
    auto engine = start(on_fabric(degrees, hosts, "lo"));
    ASSERT_NE(engine, nullptr);
    EXPECT_EQ(answers_of(*engine), alone);
    const WorkerReport report = engine->worker();
    const auto purpose = static_cast<std::size_t>(degrees.tp > 1 ? comm::Purpose::kTp : comm::Purpose::kPp);
    EXPECT_GT(report.ranks[0].traffic[purpose].wire[static_cast<std::size_t>(comm::Scope::kNetwork)], 0U);
    EXPECT_EQ(report.epoch.value, 1U);
    expect_pages_back(*engine);
  }
}

TEST_F(EngineFabric, AnInterfaceThatIsNotThereEndsTheStart) {
  SHOAL_NEEDS_STORIES();
  const auto engine = Engine::start(on_fabric({.tp = 2}, 2, "nosuch0"));
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().message(), "--fabric nosuch0: there is no such interface here");
}

}  // namespace
}  // namespace shoal::engine
