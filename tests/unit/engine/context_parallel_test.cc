// Sequences whose pages lie with several coordinates: in strict mode the logits of one rank, bit by bit,
// however prompts are dealt, cut into chunks, cached and decoded.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <future>

#include "engine_rig.h"
#include "exactness_matrix.h"
#include "exactness_models.h"
#include "model/model_rig.h"
#include "thread_launcher.h"

namespace shoal::engine {
namespace {

using testing_matrix::everything;

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

// For 25,000 tokens over eight ranks on one core.
constexpr std::chrono::minutes kPatience{30};

struct Asked {
  std::vector<TokenId> prompt;
  std::int32_t tokens = 0;
  std::uint64_t seed = 0;
};

// A model, and what it is asked: each wave at once when the one before has ended.
struct Case {
  std::filesystem::path model;
  std::vector<std::vector<Asked>> waves;
  std::int64_t pages = 256;
  std::optional<DType> weights = {};
  bool f32 = false;  // KV and activations
};

EngineOptions options_for(const Case& asked, const Cut& cut, const std::shared_ptr<RankLauncher>& launcher) {
  EngineOptions options = strict_options();
  options.model = asked.model;
  options.kv_pages = asked.pages;
  options.weights = asked.weights;
  if (asked.f32) {
    options.kv_dtype = KvDType::kF32;
    options.activations = kernels::Activations::kF32;
  }
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

using Logits = std::vector<std::vector<std::vector<float>>>;  // by request and token

Logits ask(Engine& engine, LogitsRecord& record, const std::vector<std::vector<Asked>>& waves) {
  Logits logits;
  for (const auto& wave : waves) {
    std::vector<Client> clients(wave.size());
    for (std::size_t i = 0; i < wave.size(); ++i) {
      const auto taken =
          engine.submit(request_of(wave[i].prompt, wave[i].tokens, wave[i].seed), clients[i].sink());
      EXPECT_TRUE(taken.ok()) << taken.status().message();
      if (!taken.ok()) return {};
    }
    for (std::size_t i = 0; i < wave.size(); ++i) {
      EXPECT_TRUE(clients[i].wait(kPatience));
      EXPECT_TRUE(clients[i].error.ok()) << clients[i].error.message();
      logits.push_back(record.rows(wave[i].seed));
    }
  }
  return logits;
}

// Ids below the vocabulary.
std::vector<TokenId> prompt_for(std::int32_t length, std::size_t seed, std::int64_t vocabulary) {
  std::vector<TokenId> prompt = prompt_of(static_cast<std::size_t>(length), seed);
  for (TokenId& id : prompt) id = static_cast<TokenId>(id % vocabulary);
  return prompt;
}

// Alone from 1 token to the context and to page borders; then at once, long beside short; then again, warm,
// whole and lengthened.
std::vector<std::vector<Asked>> waves_for(std::int32_t context, std::int64_t vocabulary,
                                          std::int32_t generate = everything() ? 200 : 40) {
  std::vector<std::vector<Asked>> waves;
  std::uint64_t seed = 1;
  const auto prompt = [&](std::int32_t n, std::size_t s) { return prompt_for(n, s, vocabulary); };
  for (const std::int32_t n : {1, 31, 32, 33, 65, context * 3 / 5})
    waves.push_back({{prompt(n, static_cast<std::size_t>(n)), 3, seed++}});
  waves.push_back({{prompt(context - 1, 1), 1, seed++}});
  const std::int32_t lengths[] = {context * 3 / 4, 7, context / 4, 40, context / 2, 1};
  std::vector<Asked> batch;
  for (const std::int32_t n : lengths)
    batch.push_back({prompt(n, static_cast<std::size_t>(n) + 50), std::min(generate, context - n), seed++});
  waves.push_back(batch);
  batch.clear();
  for (const std::int32_t n : {lengths[0], lengths[4], lengths[2]}) {
    std::vector<TokenId> again = prompt(n, static_cast<std::size_t>(n) + 50);
    batch.push_back({again, 5, seed++});
    if (n + 65 > context) continue;
    for (const TokenId id : prompt(60, 9)) again.push_back(id);
    batch.push_back({again, 5, seed++});
  }
  waves.push_back(batch);
  return waves;
}

Logits one_ranks(const Case& asked) {
  LogitsRecord record;
  EngineOptions options = options_for(asked, {}, nullptr);
  options.logits_observer = record.observer();
  return ask(*start(options), record, asked.waves);
}

void expect_bits(const Case& asked, const Cut& cut, const Logits& alone) {
  SCOPED_TRACE(asked.model.string() + " " + name_of(cut));
  LogitsRecord record;
  auto launcher = std::make_shared<ThreadLauncher>("test", record.observer());
  EngineOptions options = options_for(asked, cut, launcher);
  options.logits_observer = record.observer();
  set_log_level(LogLevel::kError);
  auto started = Engine::start(options);
  if (!started.ok()) {
    // The model allows fewer parts.
    EXPECT_NE(started.error().message().find("the nearest degree is"), std::string::npos)
        << started.error().message();
    return;
  }
  const std::unique_ptr<Engine> engine = *std::move(started);
  const Logits ranks = ask(*engine, record, asked.waves);
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

void expect_one_ranks_bits(const Case& asked, const std::vector<Cut>& cuts) {
  const Logits alone = one_ranks(asked);
  std::size_t index = 0;
  for (const Cut& cut : cuts) {
    if (!testing_matrix::in_part(index++)) continue;
    expect_bits(asked, cut, alone);
    if (testing::Test::HasFailure()) return;
    testing_matrix::tell_compared(asked.model.filename().string() + " " + name_of(cut));
  }
}

constexpr ContextPartition kPartitions[] = {ContextPartition::kZigzag, ContextPartition::kStriped,
                                            ContextPartition::kContiguous, ContextPartition::kMasked};

std::vector<Cut> cuts() {
  std::vector<Cut> cuts = {{{.cp = 2}},
                           {{.cp = 2}, ContextPartition::kZigzag, 2},
                           {{.cp = 2}, ContextPartition::kContiguous, 2, 48},
                           {{.cp = 2}, ContextPartition::kMasked, 2, 200},
                           {{.cp = 3}, ContextPartition::kStriped, 3, 100},
                           {{.cp = 4}, ContextPartition::kZigzag, 3, 37},
                           {{.tp = 2, .cp = 2}, ContextPartition::kZigzag, 2, 64},
                           {{.pp = 2, .cp = 2}, ContextPartition::kZigzag, 2, 64}};
  if (!everything()) return cuts;
  for (std::int32_t cp = 2; cp <= 4; ++cp) {
    for (std::int32_t tp = 1; tp * cp <= 8; ++tp) {
      for (std::int32_t pp = 1; pp * tp * cp <= 8; ++pp) {
        for (const ContextPartition partition : kPartitions)
          cuts.push_back({{.tp = tp, .pp = pp, .cp = cp}, partition, cp, 90});
        cuts.push_back({{.tp = tp, .pp = pp, .cp = cp}});
      }
    }
  }
  // Each once.
  std::vector<Cut> once;
  for (const Cut& cut : cuts) {
    if (std::ranges::none_of(once, [&](const Cut& other) { return name_of(other) == name_of(cut); }))
      once.push_back(cut);
  }
  return once;
}

class ContextParallel : public testing::TestWithParam<Cut> {};

TEST_P(ContextParallel, AnswersAsOneRankDoes) {
  SHOAL_NEEDS_STORIES();
  static const Case asked{stories(), waves_for(512, 512)};
  static const Logits alone = one_ranks(asked);
  expect_bits(asked, GetParam(), alone);
}

INSTANTIATE_TEST_SUITE_P(Cuts, ContextParallel, testing::ValuesIn(cuts()),
                         [](const auto& info) { return name_of(info.param); });

// Windows of more and of less than a segment, in all layers but every third: two KV groups.
TEST(ContextParallelModels, SlidingWindows) {
  model::test::ScratchFolder folder;
  formats::SynthShape shape = model::test::tiny_shape();
  shape.layers = 3;
  shape.vocab = 600;
  model::test::write_model(folder / "plain.gguf", DType::kQ8_0, shape);
  for (const std::uint32_t window : {40U, 300U}) {
    SCOPED_TRACE(window);
    model::test::add_window(folder / "plain.gguf", folder / "window.gguf", window, 3);
    expect_one_ranks_bits({folder / "window.gguf", waves_for(700, 600)},
                          {{{.cp = 2}, ContextPartition::kZigzag, 2, 150},
                           {{.cp = 3}, ContextPartition::kStriped, 3, 70},
                           {{.tp = 2, .cp = 2}}});
  }
}

TEST(ContextParallelModels, TrainedModelsOfEveryFamily) {
  const auto models = testing_material::shared() / "models";
  if (!std::filesystem::exists(models)) GTEST_SKIP() << "no shared models at " << models;
  struct Trained {
    const char* name;
    std::int32_t context;
    std::int64_t vocabulary;
  };
  for (const Trained& each : {Trained{"story-656k/story-656k-q8_0.gguf", 500, 500},
                              {"random-qwen2/random-qwen2-bf16.gguf", 500, 500},
                              {"random-qwen3/random-qwen3-bf16.gguf", 500, 500}}) {
    expect_one_ranks_bits(
        {models / each.name, waves_for(each.context, each.vocabulary, 10)},
        {{{.cp = 2}, ContextPartition::kZigzag, 2, 100}, {{.cp = 3}, ContextPartition::kZigzag, 3}});
  }
}

class ContextParallelModel : public testing::TestWithParam<ExactModel> {};

// Every model of the exactness matrix, up to its context: a long run.
TEST_P(ContextParallelModel, AnswersAsOneRankDoes) {
  const ExactModel& model = GetParam();
  const ScratchFolder scratch;
  const auto file = model.source(scratch.path());
  if (file.empty()) GTEST_SKIP() << "no " << model.name << " on this machine";
  // Chunks that end inside a page.
  const std::int32_t chunk = model.context / 4 + 5;
  std::vector<Cut> cuts = {{{.cp = 2}, ContextPartition::kZigzag, 2, chunk},
                           {{.cp = 3}, ContextPartition::kStriped, 3, chunk},
                           {{.cp = 4}, ContextPartition::kContiguous, 4},
                           {{.tp = 2, .cp = 2}, ContextPartition::kZigzag, 2, chunk}};
  if (model.layers > 1) cuts.push_back({{.pp = 2, .cp = 2}, ContextPartition::kZigzag, 2, chunk});
  // Three times what the longest wave takes.
  const std::int64_t pages = 3 * (3 * model.context / kPageTokens + 64);
  expect_one_ranks_bits({file, waves_for(model.context, model.vocabulary), pages, model.weights, model.f32},
                        cuts);
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ContextParallelModel);
INSTANTIATE_TEST_SUITE_P(Models, ContextParallelModel,
                         testing::ValuesIn(everything() ? exact_models() : std::vector<ExactModel>()),
                         [](const auto& info) { return std::string(info.param.name); });

// Prompts above the border are shared, short ones are not: each continues what the other has cached.
TEST(ContextParallelModels, PrefixesCachedUnderAnotherDegree) {
  model::test::ScratchFolder folder;
  formats::SynthShape shape = model::test::tiny_shape();
  shape.vocab = 600;
  shape.context = 8192;
  model::test::write_model(folder / "long.gguf", DType::kQ8_0, shape);
  const auto prompt = [](std::int32_t n) { return prompt_for(n, 3, 600); };
  const std::int32_t generate = everything() ? 200 : 20;
  std::vector<std::vector<Asked>> waves = {
      {{prompt(700), 5, 1}},          // on one
      {{prompt(5200), generate, 2}},  // all of them after 21 of one's pages
      {{prompt(5300), generate, 3}},  // on one, after pages of all
      {{prompt(5200), generate, 4}, {prompt(900), generate, 5}, {prompt_for(4500, 8, 600), generate, 6}}};
  if (everything()) waves.push_back({{prompt_for(8191, 5, 600), 1, 7}});
  expect_one_ranks_bits({folder / "long.gguf", waves, 512},
                        {{{.cp = 2}}, {{.cp = 3}, ContextPartition::kStriped}});
}

// In default mode the same within rounding, as long as both have chosen the same tokens.
TEST(ContextParallelModels, DefaultModeIsClose) {
  SHOAL_NEEDS_STORIES();
  const auto waves = waves_for(512, 512, 12);
  const auto run = [&](const Cut& cut) {
    LogitsRecord record;
    auto launcher = std::make_shared<ThreadLauncher>("test", record.observer());
    EngineOptions options = options_for({stories(), {}}, cut, launcher);
    options.deterministic = false;
    options.logits_observer = record.observer();
    return ask(*start(options), record, waves);
  };
  const auto alone = run({});
  for (const Cut& cut : {Cut{{.cp = 2}, ContextPartition::kZigzag, 2, 200},
                         Cut{{.cp = 3}, ContextPartition::kStriped, 3, 100}, Cut{{.cp = 2}}}) {
    const auto ranks = run(cut);
    ASSERT_EQ(ranks.size(), alone.size());
    for (std::size_t i = 0; i < alone.size(); ++i) {
      for (std::size_t row = 0; row < std::min(alone[i].size(), ranks[i].size()); ++row) {
        const std::vector<float>& a = alone[i][row];
        const std::vector<float>& b = ranks[i][row];
        float largest = 0, furthest = 0;
        for (std::size_t k = 0; k < a.size(); ++k) {
          largest = std::max(largest, std::abs(a[k]));
          furthest = std::max(furthest, std::abs(a[k] - b[k]));
        }
        ASSERT_LT(furthest, 0.02F * largest) << name_of(cut) << " request " << i << " row " << row;
        // Sampled tokens follow from the logits: behind the first that differs contexts are not the same.
        if (std::ranges::max_element(a) - a.begin() != std::ranges::max_element(b) - b.begin()) break;
      }
    }
  }
}

// One coordinate stands in the middle of a step until the other has answered a whole request.
TEST(ContextParallelModels, CoordinatesThatShareNothingDoNotWait) {
  SHOAL_NEEDS_STORIES();
  Client quick, slow;
  std::promise<void> over;
  std::shared_future<void> is_over = over.get_future().share();
  std::atomic<bool> stood = false;
  const LogitsObserver observer = [&](const SamplingParams& sampling, std::uint64_t index, TokenId,
                                      std::span<const float>) {
    if (sampling.seed != 2 || index != 0) return;
    stood = true;
    EXPECT_EQ(is_over.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  };
  EngineOptions options =
      options_for({stories(), {}}, {{.cp = 2}}, std::make_shared<ThreadLauncher>("test", observer));
  options.logits_observer = observer;
  const std::unique_ptr<Engine> engine = start(options);
  ASSERT_NE(engine, nullptr);
  // The first runs when the second comes, which is given the other coordinate.
  ASSERT_TRUE(engine->submit(request_of(prompt_of(40, 1), 150, 1), quick.sink()).ok());
  ASSERT_TRUE(quick.wait_for_events(1));
  ASSERT_TRUE(engine->submit(request_of(prompt_of(50, 2), 3, 2), slow.sink()).ok());
  EXPECT_TRUE(quick.wait(std::chrono::seconds(30)));
  EXPECT_EQ(quick.ids().size(), 150U);
  over.set_value();
  ASSERT_TRUE(slow.wait());
  EXPECT_TRUE(slow.error.ok()) << slow.error.message();
  EXPECT_EQ(slow.ids().size(), 3U);
  EXPECT_TRUE(stood);
  expect_pages_back(*engine);
}

// What no pool holds alone, several hold together.
TEST(ContextParallelModels, ALongPromptFitsSeveralPools) {
  SHOAL_NEEDS_STORIES();
  const std::vector<TokenId> prompt = prompt_of(300, 4);
  for (const std::int32_t cp : {1, 2, 4}) {
    EngineOptions options = options_for({stories(), {}}, {{.cp = cp}}, std::make_shared<ThreadLauncher>());
    options.kv_pages = 6;
    auto engine = start(options);
    ASSERT_NE(engine, nullptr);
    EXPECT_EQ(engine->context(), std::min(512, 6 * 32 * cp));
    Client client;
    const auto taken = engine->submit(request_of(prompt, 8), client.sink());
    EXPECT_EQ(taken.ok(), cp > 1);
    if (!taken.ok()) {
      EXPECT_EQ(taken.error().code(), ErrorCode::kTooLong);
      continue;
    }
    ASSERT_TRUE(client.wait());
    EXPECT_TRUE(client.error.ok()) << client.error.message();
    EXPECT_EQ(client.ids().size(), 8U);
    // One more than all of them hold.
    EXPECT_FALSE(engine
                     ->submit(request_of(prompt_of(static_cast<std::size_t>(engine->context()), 1), 1),
                              Client().sink())
                     .ok());
    expect_pages_back(*engine);
  }
}

}  // namespace
}  // namespace shoal::engine
