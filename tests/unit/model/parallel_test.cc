// Every layout gives one rank's logits: bit by bit in strict mode, closely otherwise. Ranks are threads of
// this process, over shared memory or messages.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "comm/fake_carrier.h"
#include "comm/shm_carrier.h"
#include "material.h"
#include "model/model_rig.h"
#include "parallel/peers.h"

namespace shoal::model::test {
namespace {

struct Case {
  Degrees degrees;
  const char* carrier = "shm";
};

std::string name_of(const Case& c) {
  return std::string(c.carrier) + "_tp" + std::to_string(c.degrees.tp) + "_pp" + std::to_string(c.degrees.pp);
}

std::vector<std::unique_ptr<comm::Carrier>> carriers_for(const Layout& layout, const std::string& kind) {
  if (kind == "fake") return comm::FakeNetwork::carriers(layout.ranks());
  comm::ShmLayout shm;
  shm.ranks = layout.ranks();
  for (std::int32_t stage = 0; stage < layout.degrees().pp; ++stage)
    shm.groups.push_back(layout.group(GroupKind::kAttentionTensor, layout.rank({0, stage, 0, 0})).ranks);
  auto segment = comm::ShmSegment::create(shm);
  std::vector<std::unique_ptr<comm::Carrier>> carriers;
  for (std::int32_t rank = 0; rank < layout.ranks(); ++rank)
    carriers.push_back(std::make_unique<comm::ShmCarrier>(
        *segment, rank, comm::ShmCarrier::Options{comm::Patience{0}, nullptr}));
  return carriers;
}

// All logits of a sequence computed in chunks by the ranks of a layout, or why it cannot be.
struct Outcome {
  std::vector<float> logits;
  std::string refused;
};

class RankThread {
 public:
  RankThread(const std::filesystem::path& file, const Layout& layout, std::int32_t rank,
             comm::Carrier& carrier, RigOptions options)
      : pool_({.threads = 1, .spin = std::chrono::microseconds(0), .pin = false}),
        peers_(layout, rank, carrier, ledger_) {
    LoadOptions load;
    load.layout = layout;
    load.rank = rank;
    load.context = {&pool_, *kernels::chosen_isa(), options.activations, options.strict};
    auto loaded = Model::load(file, load);
    if (!loaded) {
      refused = loaded.error().message();
      return;
    }
    model_ = std::move(*loaded);
    model_->set_peers(peers_);
  }

  void run(const std::vector<TokenId>& tokens, std::size_t chunk, KvDType kv, std::vector<float>& out) {
    const auto pages = static_cast<std::int32_t>((tokens.size() + kPageTokens - 1) / kPageTokens);
    std::vector<Buffer> buffers;
    std::vector<KvView> pools;
    for (const KvGroup& group : model_->kv_groups()) {
      KvLayout layout = model_->pool_layout(group.id, kv);
      layout.slots = pages;
      buffers.push_back(*Buffer::allocate(layout.pool_bytes(), "test"));
      pools.push_back({buffers.back().data(), layout});
    }
    std::vector<std::int32_t> slots(static_cast<std::size_t>(pages));
    std::iota(slots.begin(), slots.end(), 0);
    const std::int64_t vocabulary = model_->description().vocabulary;
    for (std::size_t begin = 0; begin < tokens.size(); begin += chunk) {
      const std::size_t rows = std::min(chunk, tokens.size() - begin);
      Batch batch;
      batch.tokens.assign(tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                          tokens.begin() + static_cast<std::ptrdiff_t>(begin + rows));
      BatchSpan span;
      span.rows = static_cast<std::int32_t>(rows);
      span.start = static_cast<std::int32_t>(begin);
      for (std::size_t group = 0; group < pools.size(); ++group) span.slots.emplace_back(slots);
      batch.spans.push_back(span);
      for (std::size_t i = 0; i < rows; ++i) {
        batch.positions.push_back(static_cast<std::int32_t>(begin + i));
        batch.logit_rows.push_back(static_cast<std::int32_t>(i));
      }
      const std::int64_t width = model_->vocabulary().size();
      const auto n = static_cast<std::int64_t>(rows);
      std::vector<float> shard(static_cast<std::size_t>(n * width));
      model_->forward(batch, pools, {shard.data(), n, width});
      if (!peers_.last_stage()) continue;
      // Ranks of the last stage write side by side.
      for (std::int64_t row = 0; row < n; ++row)
        std::copy_n(
            shard.begin() + row * width, width,
            out.begin() + (static_cast<std::int64_t>(begin) + row) * vocabulary + model_->vocabulary().begin);
    }
    EXPECT_TRUE(peers_.status().ok()) << peers_.status().message();
  }

  std::int64_t vocabulary() const { return model_->description().vocabulary; }
  std::string refused;

 private:
  ThreadPool pool_;
  comm::Ledger ledger_;
  parallel::Peers peers_;
  std::unique_ptr<Model> model_;
};

Outcome run_layout(const std::filesystem::path& file, const Case& c, const std::vector<TokenId>& tokens,
                   std::size_t chunk, RigOptions options) {
  const Layout layout = *Layout::make(c.degrees);
  auto carriers = carriers_for(layout, c.carrier);
  std::vector<std::unique_ptr<RankThread>> ranks;
  Outcome outcome;
  for (std::int32_t rank = 0; rank < layout.ranks(); ++rank) {
    ranks.push_back(
        std::make_unique<RankThread>(file, layout, rank, *carriers[static_cast<std::size_t>(rank)], options));
    outcome.refused = ranks.back()->refused;
    if (!outcome.refused.empty()) return outcome;
  }
  outcome.logits.resize(tokens.size() * static_cast<std::size_t>(ranks.front()->vocabulary()));
  std::vector<std::thread> threads;
  for (auto& rank : ranks)
    threads.emplace_back([&, at = rank.get()] { at->run(tokens, chunk, options.kv, outcome.logits); });
  for (std::thread& thread : threads) thread.join();
  return outcome;
}

class EveryLayout : public testing::TestWithParam<Case> {
 protected:
  // Strict: the same bits as one rank; also in other chunks.
  static void expect_one_ranks_bits(const std::filesystem::path& file, int count) {
    SCOPED_TRACE(file.string());
    Rig alone(file);
    ASSERT_FALSE(HasFailure());
    const auto tokens = arbitrary_tokens(count, 3, alone.vocabulary());
    const std::vector<float> expected = alone.run(tokens, tokens.size());
    for (const std::size_t chunk : {tokens.size(), std::size_t{17}}) {
      const Outcome outcome = run_layout(file, GetParam(), tokens, chunk, {});
      if (!outcome.refused.empty()) {
        EXPECT_NE(outcome.refused.find("the nearest degree is"), std::string::npos) << outcome.refused;
        return;
      }
      ASSERT_EQ(outcome.logits.size(), expected.size());
      ASSERT_EQ(std::memcmp(outcome.logits.data(), expected.data(), expected.size() * sizeof(float)), 0)
          << "chunks of " << chunk;
    }
  }

  static void expect_close(const std::filesystem::path& file, int count) {
    SCOPED_TRACE(file.string());
    Rig alone(file, {.strict = false});
    ASSERT_FALSE(HasFailure());
    const auto tokens = arbitrary_tokens(count, 4, alone.vocabulary());
    const std::vector<float> expected = alone.run(tokens, tokens.size());
    const Outcome outcome = run_layout(file, GetParam(), tokens, tokens.size(), {.strict = false});
    if (!outcome.refused.empty()) return;
    ASSERT_EQ(outcome.logits.size(), expected.size());
    float largest = 0, furthest = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      largest = std::max(largest, std::abs(expected[i]));
      furthest = std::max(furthest, std::abs(expected[i] - outcome.logits[i]));
    }
    // bf16 alone moves logits by as much.
    EXPECT_LT(furthest, 0.02F * largest);
  }
};

TEST_P(EveryLayout, RandomModelsOfEveryType) {
  ScratchFolder folder;
  for (const DType type : {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ4_0}) {
    formats::SynthShape shape = tiny_shape();
    shape.layers = 3;
    shape.vocab = 2500;  // three segments
    const auto file = folder / "model.gguf";
    write_model(file, type, shape);
    expect_one_ranks_bits(file, 70);
    expect_close(file, 70);
  }
}

// Heads and feed-forward segments of 32 columns in blocks of 256: every cut falls inside one.
TEST_P(EveryLayout, KQuantsAreCutInsideTheirBlocks) {
  ScratchFolder folder;
  formats::SynthShape shape = tiny_shape();
  shape.layers = 3;
  shape.dim = 256;
  shape.heads = 8;
  shape.kv_heads = 2;
  shape.head_dim = 32;
  shape.ffn_dim = 512;
  for (const DType type : {DType::kQ4_K, DType::kQ6_K}) {
    const auto file = folder / "model.gguf";
    write_model(file, type, shape);
    expect_one_ranks_bits(file, 50);
    expect_close(file, 50);
  }
}

TEST_P(EveryLayout, SlidingWindowsAndUntiedHeads) {
  ScratchFolder folder;
  formats::SynthShape shape = tiny_shape();
  shape.layers = 3;
  shape.tied = false;
  write_model(folder / "plain.gguf", DType::kQ8_0, shape);
  add_window(folder / "plain.gguf", folder / "window.gguf", 40, 3);
  expect_one_ranks_bits(folder / "window.gguf", 100);
}

TEST_P(EveryLayout, TrainedModels) {
  const auto models = testing_material::shared() / "models";
  if (!std::filesystem::exists(models)) GTEST_SKIP() << "no shared models at " << models;
  for (const char* name : {"stories260k/stories260K-f32.gguf", "story-656k/story-656k-q8_0.gguf",
                           "story-656k/story-656k-bf16.gguf", "aidreams260k/aidreams260K-f32.gguf",
                           "babyllama-105/babyllama-105-f32.gguf", "random-qwen2/random-qwen2-bf16.gguf",
                           "random-qwen3/random-qwen3-bf16.gguf"})
    expect_one_ranks_bits(models / name, 90);
}

INSTANTIATE_TEST_SUITE_P(Layouts, EveryLayout,
                         testing::Values(Case{{.tp = 2}}, Case{{.tp = 3}}, Case{{.tp = 4}}, Case{{.pp = 2}},
                                         Case{{.pp = 3}}, Case{{.tp = 2, .pp = 2}}, Case{{.tp = 3, .pp = 2}},
                                         Case{{.tp = 2, .pp = 3}}, Case{{.tp = 2, .pp = 2}, "fake"},
                                         Case{{.tp = 3}, "fake"}),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace shoal::model::test
