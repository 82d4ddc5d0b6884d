// Sequences whose pages lie with several coordinates: in strict mode the logits of one rank, bit by bit,
// however prompts are dealt, cut into chunks, cached and decoded.

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "engine_rig.h"
#include "model/model_rig.h"
#include "thread_launcher.h"

namespace shoal::engine {
namespace {

struct Cut {
  Degrees degrees;
  ContextPartition partition = ContextPartition::kZigzag;
  std::int32_t force = 0;
  std::int32_t chunk = 0;
};

std::string name_of(const Cut& cut) {
  std::string name = "tp" + std::to_string(cut.degrees.tp) + "_pp" + std::to_string(cut.degrees.pp) + "_cp" +
                     std::to_string(cut.degrees.cp) + "_" + std::string(partition_name(cut.partition)) +
                     "_force" + std::to_string(cut.force) + "_chunk" + std::to_string(cut.chunk);
  return name;
}

EngineOptions options_for(const std::filesystem::path& model, const Cut& cut,
                          const std::shared_ptr<RankLauncher>& launcher) {
  EngineOptions options = strict_options();
  options.model = model;
  options.threads = 1;
  options.degrees = cut.degrees;
  options.cp_partition = cut.partition;
  options.cp_force = cut.force;
  options.prefill_chunk = cut.chunk;
  options.launcher = launcher;
  options.build = "test";
  return options;
}

bool same_bits(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  if (a.size() != b.size() || a.empty()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size() || std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0)
      return false;
  }
  return true;
}

struct Asked {
  std::vector<TokenId> prompt;
  std::int32_t tokens = 0;
  std::uint64_t seed = 0;
};

// Logits by request, each wave submitted at once when the one before has ended.
std::vector<std::vector<std::vector<float>>> ask(Engine& engine, LogitsRecord& record,
                                                 const std::vector<std::vector<Asked>>& waves) {
  std::vector<std::vector<std::vector<float>>> logits;
  for (const auto& wave : waves) {
    std::vector<Client> clients(wave.size());
    for (std::size_t i = 0; i < wave.size(); ++i) {
      const auto taken =
          engine.submit(request_of(wave[i].prompt, wave[i].tokens, wave[i].seed), clients[i].sink());
      EXPECT_TRUE(taken.ok()) << taken.status().message();
    }
    for (std::size_t i = 0; i < wave.size(); ++i) {
      EXPECT_TRUE(clients[i].wait());
      EXPECT_TRUE(clients[i].error.ok()) << clients[i].error.message();
      logits.push_back(record.rows(wave[i].seed));
    }
  }
  return logits;
}

// Alone from 1 token to the context and to page borders; then at once, long beside short; then again, warm,
// whole and lengthened.
std::vector<std::vector<Asked>> waves_for(std::int32_t context) {
  std::vector<std::vector<Asked>> waves;
  std::uint64_t seed = 1;
  const auto prompt = [](std::int32_t n, std::size_t s) { return prompt_of(static_cast<std::size_t>(n), s); };
  for (const std::int32_t n : {1, 31, 32, 33, 65, 300})
    waves.push_back({{prompt(n, static_cast<std::size_t>(n)), 3, seed++}});
  waves.push_back({{prompt(context - 1, 1), 1, seed++}});
  std::vector<Asked> batch;
  for (const std::int32_t n : {400, 7, 150, 40, 260, 1}) {
    batch.push_back({prompt(n, static_cast<std::size_t>(n) + 50), 40, seed});
    ++seed;
  }
  waves.push_back(batch);
  batch.clear();
  for (const std::int32_t n : {400, 260, 150}) {
    std::vector<TokenId> again = prompt(n, static_cast<std::size_t>(n) + 50);
    batch.push_back({again, 5, seed++});
    for (const TokenId id : prompt(60, 9)) again.push_back(id);
    batch.push_back({again, 5, seed++});
  }
  waves.push_back(batch);
  return waves;
}

void expect_one_ranks_bits(const std::filesystem::path& model, const Cut& cut,
                           const std::vector<std::vector<Asked>>& waves, std::int64_t pages = 256) {
  SCOPED_TRACE(model.string());
  LogitsRecord alone_record;
  EngineOptions alone_options = options_for(model, {}, nullptr);
  alone_options.kv_pages = pages;
  alone_options.logits_observer = alone_record.observer();
  const auto alone = ask(*start(alone_options), alone_record, waves);

  LogitsRecord record;
  auto launcher = std::make_shared<ThreadLauncher>("test", record.observer());
  EngineOptions options = options_for(model, cut, launcher);
  options.kv_pages = pages;
  options.logits_observer = record.observer();
  auto engine = start(options);
  ASSERT_NE(engine, nullptr);
  const auto ranks = ask(*engine, record, waves);
  ASSERT_EQ(ranks.size(), alone.size());
  for (std::size_t i = 0; i < alone.size(); ++i)
    EXPECT_TRUE(same_bits(ranks[i], alone[i])) << "request " << i;
  if (cut.force > 1) {
    // Pages and queries have really travelled.
    const TrafficTotals traffic = engine->worker().ranks[0].traffic;
    EXPECT_GT(traffic[static_cast<std::size_t>(comm::Purpose::kCpRing)].payload, 0U);
    EXPECT_GT(traffic[static_cast<std::size_t>(comm::Purpose::kCpMerge)].payload, 0U);
  }
  expect_pages_back(*engine);
}

class ContextParallel : public testing::TestWithParam<Cut> {};

TEST_P(ContextParallel, AnswersAsOneRankDoes) {
  SHOAL_NEEDS_STORIES();
  expect_one_ranks_bits(stories(), GetParam(), waves_for(512));
}

INSTANTIATE_TEST_SUITE_P(Cuts, ContextParallel,
                         testing::Values(Cut{{.cp = 2}}, Cut{{.cp = 2}, ContextPartition::kZigzag, 2},
                                         Cut{{.cp = 2}, ContextPartition::kContiguous, 2, 48},
                                         Cut{{.cp = 3}, ContextPartition::kStriped, 3, 100},
                                         Cut{{.cp = 4}, ContextPartition::kZigzag, 3, 37},
                                         Cut{{.tp = 2, .cp = 2}, ContextPartition::kZigzag, 2, 64},
                                         Cut{{.pp = 2, .cp = 2}, ContextPartition::kZigzag, 2, 64}),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace shoal::engine
