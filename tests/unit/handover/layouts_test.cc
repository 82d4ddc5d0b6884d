// A handover between any two layouts never changes the answer: in strict mode tokens and log-probabilities
// are those of one rank, bit by bit, and what travels is what the formula says. Ranks are threads of this
// process.
//
// What `ctest` runs is a sample: every layout on either side at least once, prompts of up to 480 tokens. With
// SHOAL_EXACTNESS=all (exactness_matrix.h) it is every pair, with prompts of up to 6,000.

#include <gtest/gtest.h>

#include "../engine/exactness_models.h"
#include "exactness_matrix.h"
#include "handover_rig.h"

namespace shoal::handover {
namespace {

const std::string kToken = "0123456789abcdef";

struct Shape {
  const char* name;
  Degrees degrees;
  std::vector<std::int32_t> split = {};   // of tp
  std::vector<std::int32_t> layers = {};  // of stages
};

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {
      {"tp1", {}},
      {"tp2", {.tp = 2}},
      {"tp3", {.tp = 3}},
      {"pp2", {.pp = 2}},
      {"cp2", {.cp = 2}},
      {"tp2pp2", {.tp = 2, .pp = 2}},
      {"tp2cp2", {.tp = 2, .cp = 2}},
  };
  return all;
}

EngineOptions options_of(const std::filesystem::path& model, const Shape& shape, std::int64_t pages,
                         std::int32_t chunk) {
  EngineOptions options = strict_options();
  options.model = model;
  options.threads = 1;
  options.degrees = shape.degrees;
  options.tp_split = shape.split;
  options.stage_layers = shape.layers;
  options.cp_force = shape.degrees.cp;
  options.prefill_chunk = chunk;
  options.kv_pages = pages;
  return options;
}

// What one rank says, and what two workers are asked.
struct Case {
  GenerateRequest request;
  std::unique_ptr<Client> expected;
};

std::vector<Case> cases_for(const std::filesystem::path& model, std::span<const std::size_t> lengths,
                            std::int64_t vocabulary, std::int64_t pages, std::int32_t tokens) {
  std::vector<Case> cases;
  const auto alone = engine::start(options_of(model, shapes().front(), pages, 0));
  for (const std::size_t length : lengths) {
    GenerateRequest request = request_of(prompt_of(length, length), tokens, length + 1);
    for (TokenId& id : request.prompt) id = static_cast<TokenId>(id % vocabulary);
    request.sampling.logprobs = 3;
    // A second choice: its prompt is cached by then, but for the last page.
    request.n = length == 33 ? 2 : 1;
    Case& each = cases.emplace_back(Case{request, std::make_unique<Client>()});
    EXPECT_TRUE(alone->submit(request, each.expected->sink()).ok());
    EXPECT_TRUE(each.expected->wait());
  }
  return cases;
}

// What of a prompt's KV travels: every page that the position after it sees, once to each rank that holds a
// part of it; pages that a second choice finds in the prefix tree are not sent again.
std::uint64_t bytes_of(const GenerateRequest& request, const Engine& decode) {
  const engine::KvPools& pools = decode.kv_pools();
  const auto tokens = static_cast<std::int32_t>(request.prompt.size());
  const std::int32_t all = (tokens + 31) / 32;
  std::uint64_t bytes = 0;
  for (std::size_t g = 0; g < pools.groups.size(); ++g) {
    const std::int32_t pages =
        all - first_visible_page(tokens, pools.groups[g].window) + (request.n - 1) * (all - tokens / 32);
    bytes += static_cast<std::uint64_t>(pages) * page_bytes(decode, g);
  }
  return bytes;
}

// On a pair that knows nothing of these prompts, one after the other; then at once, cached on either side.
void expect_answers(Pair& pair, const std::vector<Case>& cases, std::chrono::seconds patience) {
  const std::uint64_t before = pair.kv_bytes();
  std::uint64_t due = 0;
  for (const Case& each : cases) {
    SCOPED_TRACE("prompt " + std::to_string(each.request.prompt.size()));
    due += bytes_of(each.request, *pair.decode);
    Client first, answer;
    pair.ask(each.request, first, answer);
    ASSERT_TRUE(answer.wait(patience));
    ASSERT_TRUE(first.wait(patience));
    ASSERT_TRUE(answer.error.ok()) << answer.error.message();
    ASSERT_TRUE(first.error.ok()) << first.error.message();
    expect_same(answer, *each.expected, each.request.n);
    if (testing::Test::HasFailure()) return;
  }
  // Other ranks tell their head what they have sent with their beats.
  EXPECT_TRUE(eventually([&] { return pair.kv_bytes() - before == due; }, std::chrono::seconds(3)))
      << pair.kv_bytes() - before << " bytes of " << due;
  std::vector<std::unique_ptr<Client>> clients;
  for (const Case& each : cases) {
    for (int leg = 0; leg < 2; ++leg) clients.push_back(std::make_unique<Client>());
    pair.ask(each.request, *clients[clients.size() - 2], *clients.back());
  }
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE("at once, prompt " + std::to_string(cases[i].request.prompt.size()));
    ASSERT_TRUE(clients[2 * i + 1]->wait(patience));
    ASSERT_TRUE(clients[2 * i]->wait(patience));
    ASSERT_TRUE(clients[2 * i + 1]->error.ok()) << clients[2 * i + 1]->error.message();
    expect_same(*clients[2 * i + 1], *cases[i].expected, cases[i].request.n);
  }
  pair.expect_nothing_held();
}

// Ranks are threads here that give each other pages by messages through sockets: an order that
// ThreadSanitizer does not see.
#if defined(__SANITIZE_THREAD__)
#define SHOAL_NEEDS_SEEN_ORDER() GTEST_SKIP() << "pages change hands through sockets"
#else
#define SHOAL_NEEDS_SEEN_ORDER() static_cast<void>(0)
#endif

TEST(HandoverLayouts, AnswersAreOneRanksBitForBit) {
  SHOAL_NEEDS_STORIES();
  SHOAL_NEEDS_SEEN_ORDER();
  const std::size_t lengths[] = {1, 31, 32, 33, 300, 480};
  const auto cases = cases_for(stories(), lengths, 512, 128, 6);
  const std::size_t n = shapes().size();
  for (std::size_t i = 0; i < n; ++i) {
    const Shape& from = shapes()[i];
    const Shape& to = shapes()[(3 * i + 2) % n];
    SCOPED_TRACE(std::string(from.name) + " to " + to.name);
    Pair pair(options_of(stories(), from, 128, 70), options_of(stories(), to, 128, 0), kToken, "1",
              i % 2 == 0);
    expect_answers(pair, cases, std::chrono::seconds(120));
    if (HasFailure()) return;
  }
}

TEST(HandoverLayouts, UnevenOnesToo) {
  SHOAL_NEEDS_STORIES();
  SHOAL_NEEDS_SEEN_ORDER();
  const std::size_t lengths[] = {1, 33, 300};
  const auto cases = cases_for(stories(), lengths, 512, 128, 6);
  const Shape uneven[] = {{"heads", {.tp = 2}, {3, 1}},
                          {"layers", {.pp = 2}, {}, {1, 4}},
                          {"both", {.tp = 2, .pp = 2}, {1, 3}, {4, 1}}};
  for (std::size_t i = 0; i < std::size(uneven); ++i) {
    const Shape& from = uneven[i];
    const Shape& to = uneven[(i + 1) % std::size(uneven)];
    SCOPED_TRACE(std::string(from.name) + " to " + to.name);
    Pair pair(options_of(stories(), from, 128, 0), options_of(stories(), to, 128, 0), kToken, "1",
              i % 2 == 1);
    expect_answers(pair, cases, std::chrono::seconds(120));
    if (HasFailure()) return;
  }
}

// Grouped heads that no degree divides evenly, windows, and prompts of 6,000 tokens.
TEST(HandoverExactness, EveryPairOfLayouts) {
  if (!testing_matrix::everything()) GTEST_SKIP() << "runs with SHOAL_EXACTNESS=all";
  engine::ScratchFolder scratch;
  struct Model {
    std::filesystem::path file;
    std::vector<std::size_t> lengths;
    std::int64_t vocabulary;
    std::int64_t pages;
  };
  const Model models[] = {{engine::synthetic("llama-tiny-8k", DType::kQ8_0)(scratch.path()),
                           {1, 31, 32, 33, 1000, 6000},
                           49152,
                           480},
                          {engine::small_gemma3(100)(scratch.path()), {1, 31, 32, 33, 1000}, 3000, 128}};
  // Pages are sent and read in turn.
  bool direct = false;
  std::size_t index = 0;
  for (const Model& model : models) {
    const auto cases = cases_for(model.file, model.lengths, model.vocabulary, model.pages, 4);
    for (const Shape& from : shapes()) {
      for (const Shape& to : shapes()) {
        SCOPED_TRACE(model.file.string() + " " + from.name + " to " + to.name);
        direct = !direct;
        if (!testing_matrix::in_part(index++)) continue;
        Pair pair(options_of(model.file, from, model.pages, 217), options_of(model.file, to, model.pages, 0),
                  kToken, "1", direct);
        expect_answers(pair, cases, std::chrono::minutes(10));
        if (HasFailure()) return;
        testing_matrix::tell_compared(model.file.filename().string() + " " + from.name + " to " + to.name);
      }
    }
  }
}

}  // namespace
}  // namespace shoal::handover
