// A layout never changes the answer: every model over every layout gives the logits of one rank. In strict
// mode bit by bit, for prompts of one token up to the model's context, batched and alone, chunked, cold and
// warm; in the default mode within a tolerance, along the same tokens.
//
// Ranks are threads of this process. What `ctest` runs is a sample: a few layouts of each model, prompts of
// at most 150 tokens, without the two models of 8,192 tokens. With SHOAL_EXACTNESS=all
// (exactness_matrix.h) it is everything.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "engine_rig.h"
#include "exactness_matrix.h"
#include "exactness_models.h"
#include "thread_launcher.h"

namespace shoal::engine {
namespace {

using testing_matrix::everything;

// How far a layout may move logits in the default mode, of the largest of a row. Sums in another order differ
// by 1e-7 or so, and flip the rounding of values to 8 or 16 bits: so by this much, or as much as the rounding
// of activations itself does, whichever is more. The ids that both find best differ by no more than twice
// that.
constexpr float kTolerance = 0.01F;
constexpr float kOfRounding = 1.5F;

constexpr std::int32_t kSampledPrompt = 150;
constexpr std::int32_t kOutputs = 3;
// For 25,000 tokens over eight ranks on one core.
constexpr std::chrono::minutes kPatience{30};
// No multiple of a page or a kernel's tile.
constexpr std::int32_t kChunk = 217;

struct Question {
  std::vector<TokenId> prompt;
  std::int32_t outputs = 0;
};

std::vector<Question> questions_for(const ExactModel& model) {
  const std::int32_t context = everything() ? model.context : std::min(model.context, kSampledPrompt);
  const std::int32_t lengths[] = {
      1, 2, 31, 32, 33, context / 4, context / 3 + 1, context / 2 + 5, context - 9, context - 1};
  std::vector<Question> questions;
  for (const std::int32_t length : lengths) {
    Question question;
    std::uint64_t state = static_cast<std::uint64_t>(length) * 77 + questions.size();
    for (std::int32_t i = 0; i < length; ++i) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      question.prompt.push_back(
          static_cast<TokenId>((state >> 33) % static_cast<std::uint64_t>(model.vocabulary)));
    }
    question.outputs = std::min(kOutputs, model.context - length);
    questions.push_back(std::move(question));
  }
  return questions;
}

EngineOptions options_for(const ExactModel& model, const std::filesystem::path& file, bool strict) {
  EngineOptions options;
  options.model = file;
  options.deterministic = strict;
  options.weights = model.weights;
  if (model.f32) {
    options.kv_dtype = KvDType::kF32;
    options.activations = kernels::Activations::kF32;
  }
  options.max_sequences = 16;
  // All at once, twice as long as they need be.
  options.kv_pages = 2 * 3 * (model.context / kPageTokens) + 64;
  options.build = "test";
  return options;
}

GenerateRequest request_for(const Question& question, std::size_t index) {
  GenerateRequest request = request_of(question.prompt, question.outputs, 1000 + index);
  request.sampling.temperature = index % 2 == 0 ? 0.0F : 0.8F;
  return request;
}

// One engine over the ranks of a layout, and the logits that its ranks have seen.
class Worker {
 public:
  Worker(EngineOptions options, const ExactModel& model, const ExactLayout& layout)
      : launcher_(std::make_shared<ThreadLauncher>("test", record_.observer())) {
    options.threads = layout.tp * layout.pp == 1 ? 2 : 1;
    options.degrees = {.tp = layout.tp, .pp = layout.pp};
    options.tp_split = layout.split(model);
    options.stage_layers = layout.stage_layers(model);
    options.launcher = launcher_;
    options.logits_observer = record_.observer();
    set_log_level(LogLevel::kError);
    auto started = Engine::start(std::move(options));
    if (started.ok()) {
      engine_ = *std::move(started);
    } else {
      refused_ = started.error().message();
    }
  }
  ~Worker() { engine_.reset(); }

  Engine* engine() { return engine_.get(); }
  const std::string& refused() const { return refused_; }

  struct Answer {
    std::vector<TokenId> ids;
    std::vector<std::vector<float>> logits;  // of every token
    std::vector<float> prompt_logprobs;      // where asked for
    Usage usage;
  };
  // Of all requests, running side by side or one after the other.
  std::vector<Answer> ask(std::vector<GenerateRequest> requests, bool together) {
    record_.clear();
    std::vector<Client> clients(requests.size());
    std::vector<std::uint64_t> seeds;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      seeds.push_back(requests[i].sampling.seed);
      EXPECT_TRUE(engine_->submit(std::move(requests[i]), clients[i].sink()).ok());
      if (!together) {
        EXPECT_TRUE(clients[i].wait(kPatience));
      }
    }
    std::vector<Answer> answers;
    for (std::size_t i = 0; i < clients.size(); ++i) {
      EXPECT_TRUE(clients[i].wait(kPatience));
      EXPECT_TRUE(clients[i].error.ok()) << clients[i].error.message();
      Answer answer{clients[i].ids(), record_.rows(seeds[i]), {}, clients[i].usage};
      for (const PromptLogprobs& each : clients[i].prompt_logprobs)
        answer.prompt_logprobs.push_back(each.logprob);
      answers.push_back(std::move(answer));
    }
    return answers;
  }

 private:
  LogitsRecord record_;
  std::shared_ptr<ThreadLauncher> launcher_;
  std::unique_ptr<Engine> engine_;
  std::string refused_;
};

using Answers = std::vector<Worker::Answer>;

std::vector<GenerateRequest> requests_for(const std::vector<Question>& questions) {
  std::vector<GenerateRequest> requests;
  for (std::size_t i = 0; i < questions.size(); ++i) requests.push_back(request_for(questions[i], i));
  return requests;
}

void expect_same_bits(const Answers& got, const Answers& expected, const char* how) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE(testing::Message() << how << ", question " << i);
    EXPECT_EQ(got[i].ids, expected[i].ids);
    ASSERT_EQ(got[i].logits.size(), expected[i].logits.size());
    ASSERT_EQ(expected[i].logits.size(), expected[i].ids.size());
    for (std::size_t row = 0; row < expected[i].logits.size(); ++row) {
      const auto& ours = got[i].logits[row];
      const auto& theirs = expected[i].logits[row];
      ASSERT_EQ(ours.size(), theirs.size());
      ASSERT_EQ(std::memcmp(ours.data(), theirs.data(), theirs.size() * sizeof(float)), 0) << "token " << row;
    }
  }
}

struct RowDifference {
  float furthest = 0;  // both of the largest logit
  float margin = 0;    // by which the first row's best id beats, in it, the best one of the other
};

RowDifference difference(const std::vector<float>& got, const std::vector<float>& expected) {
  RowDifference found;
  EXPECT_EQ(got.size(), expected.size());
  if (got.size() != expected.size() || got.empty()) return found;
  float largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    found.furthest = std::max(found.furthest, std::abs(expected[i] - got[i]));
  }
  const auto best = std::ranges::max_element(expected);
  const auto chosen = expected.begin() + (std::ranges::max_element(got) - got.begin());
  found.furthest /= largest;
  found.margin = (*best - *chosen) / largest;
  return found;
}

class Exactness : public testing::TestWithParam<ExactModel> {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_THREAD__)
    if (std::strcmp(GetParam().name, "stories260k") != 0) GTEST_SKIP() << "one model shows the threads";
#endif
    const bool long_context = GetParam().context > 1024;
    if (long_context && !everything()) GTEST_SKIP() << "runs with SHOAL_EXACTNESS=all";
    file_ = GetParam().source(scratch_.path());
    if (file_.empty()) GTEST_SKIP() << "no shared models at " << testing_material::shared();
    questions_ = questions_for(GetParam());
  }

  // All, or those whose turn it is with this model: over all models each comes up.
  static std::vector<ExactLayout> layouts(std::size_t most) {
    auto all = exact_layouts();
    if (everything()) {
      std::size_t at = 0;
      std::erase_if(all, [&](const ExactLayout&) { return !testing_matrix::in_part(at++); });
      return all;
    }
    std::size_t index = 0;
    for (const ExactModel& model : exact_models()) {
      if (std::strcmp(model.name, GetParam().name) == 0) break;
      ++index;
    }
    std::vector<ExactLayout> turn;
    for (std::size_t i = 0; i < most; ++i) turn.push_back(all[(index * most + i) % all.size()]);
    return turn;
  }

  std::unique_ptr<Worker> start(const ExactLayout& layout, bool strict, std::int32_t chunk) {
    EngineOptions options = options_for(GetParam(), file_, strict);
    options.prefill_chunk = chunk;
    return std::make_unique<Worker>(std::move(options), GetParam(), layout);
  }

  ScratchFolder scratch_;
  std::filesystem::path file_;
  std::vector<Question> questions_;
};

TEST_P(Exactness, StrictLogitsAreOneRanksBitByBit) {
  Answers expected;
  {
    const auto alone = start({}, true, 0);
    ASSERT_NE(alone->engine(), nullptr) << alone->refused();
    expected = alone->ask(requests_for(questions_), false);
  }
  for (const ExactLayout& layout : layouts(2)) {
    SCOPED_TRACE(layout.name());
    const auto worker = start(layout, true, kChunk);
    if (!layout.possible(GetParam())) {
      EXPECT_EQ(worker->engine(), nullptr);
      EXPECT_NE(worker->refused().find("nearest"), std::string::npos) << worker->refused();
      continue;
    }
    ASSERT_NE(worker->engine(), nullptr) << worker->refused();
    expect_same_bits(worker->ask(requests_for(questions_), true), expected, "together, cold");
    const Answers warm = worker->ask(requests_for(questions_), true);
    expect_same_bits(warm, expected, "together, warm");
    EXPECT_GT(warm.back().usage.cached_tokens, 0);
    ASSERT_TRUE(worker->engine()->flush_cache().ok());
    expect_same_bits(worker->ask(requests_for(questions_), false), expected, "alone, cold");
    expect_pages_back(*worker->engine());
    if (HasFailure()) return;
    testing_matrix::tell_compared(std::string(GetParam().name) + " " + layout.name());
  }
}

// The answers of one rank are given to all as prompts, one token longer each.
std::vector<GenerateRequest> forced_requests(const std::vector<Question>& questions,
                                             const Answers& of_one_rank) {
  std::vector<GenerateRequest> requests;
  for (std::size_t i = 0; i < questions.size(); ++i) {
    std::vector<TokenId> prompt = questions[i].prompt;
    for (std::size_t k = 0; k < of_one_rank[i].ids.size(); ++k) {
      if (k > 0) prompt.push_back(of_one_rank[i].ids[k - 1]);
      requests.push_back(request_of(prompt, 1, 1000 * (i + 1) + k));
      requests.back().sampling.temperature = 0;
    }
  }
  // Every position of one of them.
  requests.push_back(request_of(questions[questions.size() / 2].prompt, 1, 999));
  requests.back().sampling.temperature = 0;
  requests.back().prompt_logprobs = 0;
  return requests;
}

TEST_P(Exactness, DefaultLogitsAreCloseAlongTheSameTokens) {
  Answers expected;
  std::vector<GenerateRequest> requests;
  {
    const auto alone = start({}, false, 0);
    ASSERT_NE(alone->engine(), nullptr) << alone->refused();
    requests = forced_requests(questions_, alone->ask(requests_for(questions_), false));
    expected = alone->ask(requests, false);
  }
  float rounding = 0, worst = 0;
  {
    EngineOptions options = options_for(GetParam(), file_, false);
    options.activations = kernels::Activations::kF32;
    Worker unrounded(std::move(options), GetParam(), {});
    ASSERT_NE(unrounded.engine(), nullptr) << unrounded.refused();
    const Answers answers = unrounded.ask(requests, false);
    for (std::size_t i = 0; i < expected.size(); ++i)
      rounding =
          std::max(rounding, difference(answers[i].logits.front(), expected[i].logits.front()).furthest);
  }
  const float allowed = std::max(kTolerance, kOfRounding * rounding);
  for (const ExactLayout& layout : layouts(1)) {
    SCOPED_TRACE(layout.name());
    if (!layout.possible(GetParam())) continue;  // refused, as above
    const auto worker = start(layout, false, 0);
    ASSERT_NE(worker->engine(), nullptr) << worker->refused();
    const Answers got = worker->ask(requests, true);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "request " << i);
      ASSERT_EQ(got[i].logits.size(), 1U);
      ASSERT_EQ(expected[i].logits.size(), 1U);
      const RowDifference found = difference(got[i].logits.front(), expected[i].logits.front());
      EXPECT_LE(found.furthest, allowed);
      EXPECT_LE(found.margin, 2 * allowed);
      worst = std::max(worst, found.furthest);
    }
    const auto& scored = got.back().prompt_logprobs;
    const auto& scored_alone = expected.back().prompt_logprobs;
    ASSERT_EQ(scored.size(), scored_alone.size());
    ASSERT_GT(scored.size(), 0U);
    float largest = 0;
    for (const float logit : expected.back().logits.front()) largest = std::max(largest, std::abs(logit));
    for (std::size_t i = 0; i < scored.size(); ++i)
      EXPECT_NEAR(scored[i], scored_alone[i], 2 * allowed * largest) << "position " << i;
    if (HasFailure()) break;
  }
  RecordProperty("moved_by_layout", std::to_string(worst));
  RecordProperty("moved_by_rounding", std::to_string(rounding));
}

INSTANTIATE_TEST_SUITE_P(Models, Exactness, testing::ValuesIn(exact_models()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace shoal::engine
