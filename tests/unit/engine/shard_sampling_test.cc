// A vocabulary that is cut over ranks gives the tokens and log-probabilities of the whole, bit by bit.

#include "engine/shard_sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "comm/fake_carrier.h"
#include "core/thread_pool.h"
#include "kernels/isa.h"

namespace shoal::engine {
namespace {

constexpr std::int64_t kVocabulary = 5000;  // five segments, the last one short

std::vector<float> logits_of(int row, float flatness) {
  std::vector<float> logits(kVocabulary);
  for (std::size_t i = 0; i < logits.size(); ++i)
    logits[i] = std::sin(static_cast<float>(i * 37 % 1009) * 1.7F + static_cast<float>(row)) / flatness;
  return logits;
}

std::vector<SamplingParams> every_kind() {
  std::vector<SamplingParams> kinds(12);
  kinds[0].temperature = 0;
  kinds[1].temperature = 0.7F;
  kinds[2].top_k = 40;
  kinds[3].top_p = 0.9F;  // flat rows: it takes thousands of candidates
  kinds[4].min_p = 0.05F;
  kinds[5].top_k = 700;
  kinds[5].top_p = 0.5F;
  kinds[6].repetition_penalty = 1.4F;
  kinds[6].frequency_penalty = 0.3F;
  kinds[7].temperature = 0;
  kinds[7].presence_penalty = 5;
  kinds[8].logit_bias = {{4999, 9.0F}, {0, -3.0F}};
  kinds[9].top_k = 100'000;  // none
  kinds[9].top_p = 0.999F;
  kinds[10].min_tokens = 3;
  kinds[10].stop_ids = {1, 2, 4998};
  kinds[11].top_p = 1e-6F;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    kinds[i].seed = 1000 + i;
    kinds[i].logprobs = static_cast<std::int32_t>(i % 4) * 5 - 5;  // -5: none, as -1; 0; 5; 10
    if (kinds[i].logprobs < 0) kinds[i].logprobs = -1;
  }
  return kinds;
}

std::vector<Sampler> samplers() {
  std::vector<Sampler> all;
  const std::vector<TokenId> prompt = {5, 17, 4096};
  for (const SamplingParams& params : every_kind()) {
    all.emplace_back(params, prompt, std::vector<TokenId>{});
    all.back().allow_for(kVocabulary);
  }
  return all;
}

std::vector<std::vector<float>> rows_of(std::size_t count, int step, float flatness) {
  std::vector<std::vector<float>> rows;
  for (std::size_t i = 0; i < count; ++i)
    rows.push_back(logits_of(static_cast<int>(i) + 100 * step, flatness));
  return rows;
}

void expect_same(const SampledToken& got, const SampledToken& want, std::size_t row) {
  EXPECT_EQ(got.id, want.id) << "row " << row;
  EXPECT_EQ(got.logprob, want.logprob) << "row " << row;
  ASSERT_EQ(got.top.size(), want.top.size());
  for (std::size_t i = 0; i < got.top.size(); ++i) {
    EXPECT_EQ(got.top[i].id, want.top[i].id);
    EXPECT_EQ(got.top[i].logprob, want.top[i].logprob);
  }
}

class ShardSamplingRanks : public testing::TestWithParam<std::vector<std::int64_t>> {};

// f(rank, its ShardSampling, first id, end): on a thread for each rank.
template <typename F>
void on_ranks(const std::vector<std::int64_t>& ends, F&& f) {
  const auto ranks = static_cast<std::int32_t>(ends.size());
  const Layout layout = *Layout::make({.tp = ranks});
  auto carriers = comm::FakeNetwork::carriers(ranks);
  std::vector<std::thread> threads;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadPool pool({.threads = 1, .spin = std::chrono::microseconds(0), .pin = false});
      kernels::Context context;
      context.pool = &pool;
      context.isa = kernels::detected_isa();
      comm::Ledger ledger;
      parallel::Peers peers(layout, rank, *carriers[static_cast<std::size_t>(rank)], ledger);
      ShardSampling shards(context, peers, ends);
      const auto r = static_cast<std::size_t>(rank);
      f(rank, shards, rank == 0 ? 0 : ends[r - 1], ends[r]);
      EXPECT_TRUE(peers.status().ok()) << peers.status().message();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(ShardSamplingRanks, ChooseAndWeighAsOneRankDoes) {
  constexpr int kSteps = 4;
  for (const float flatness : {0.1F, 4.0F}) {
    // One rank's, step by step: penalties count what was chosen.
    ThreadPool pool({.threads = 1, .spin = std::chrono::microseconds(0), .pin = false});
    kernels::Context context;
    context.pool = &pool;
    context.isa = kernels::detected_isa();
    std::vector<std::vector<SampledToken>> expected;
    std::vector<Sampler> alone = samplers();
    for (int step = 0; step < kSteps; ++step) {
      auto rows = rows_of(alone.size(), step, flatness);
      expected.emplace_back();
      for (std::size_t i = 0; i < alone.size(); ++i)
        expected.back().push_back(alone[i].sample(context, rows[i]));
    }
    on_ranks(GetParam(), [&](std::int32_t rank, ShardSampling& shards, std::int64_t begin, std::int64_t end) {
      std::vector<Sampler> mine = samplers();
      for (int step = 0; step < kSteps; ++step) {
        auto rows = rows_of(mine.size(), step, flatness);
        const auto before = rows;
        std::vector<ShardSampling::Row> parts;
        for (std::size_t i = 0; i < mine.size(); ++i)
          parts.push_back({&mine[i], std::span(rows[i]).subspan(static_cast<std::size_t>(begin),
                                                                static_cast<std::size_t>(end - begin))});
        std::vector<SampledToken> tokens(mine.size());
        shards.sample(parts, tokens);
        EXPECT_EQ(rows, before) << "logits are restored";
        const auto& want = expected[static_cast<std::size_t>(step)];
        for (std::size_t i = 0; i < mine.size(); ++i) {
          mine[i].note(want[i].id);
          if (rank == 0) expect_same(tokens[i], want[i], i);
        }
      }
    });
  }
}

TEST_P(ShardSamplingRanks, ScoreAsOneRankDoes) {
  const std::vector<TokenId> ids = {0, 1023, 1024, 4999, 3000};
  on_ranks(GetParam(), [&](std::int32_t rank, ShardSampling& shards, std::int64_t begin, std::int64_t end) {
    const auto rows = rows_of(ids.size(), 0, 1);
    std::vector<ShardSampling::Score> scores;
    for (std::size_t i = 0; i < ids.size(); ++i)
      scores.push_back({ids[i], static_cast<std::int32_t>(i),
                        std::span(rows[i]).subspan(static_cast<std::size_t>(begin),
                                                   static_cast<std::size_t>(end - begin))});
    std::vector<RowLogprobs> results(ids.size());
    shards.score(scores, results);
    if (rank != 0) return;
    kernels::Context context;
    context.isa = kernels::detected_isa();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const RowLogprobs want = row_logprobs(context, rows[i], ids[i], static_cast<std::int32_t>(i));
      EXPECT_EQ(results[i].logprob, want.logprob);
      ASSERT_EQ(results[i].top.size(), want.top.size());
      for (std::size_t k = 0; k < want.top.size(); ++k) {
        EXPECT_EQ(results[i].top[k].id, want.top[k].id);
        EXPECT_EQ(results[i].top[k].logprob, want.top[k].logprob);
      }
    }
  });
}

// Even, lopsided, and a rank that has nothing of the vocabulary.
INSTANTIATE_TEST_SUITE_P(Cuts, ShardSamplingRanks,
                         testing::Values(std::vector<std::int64_t>{2048, kVocabulary},
                                         std::vector<std::int64_t>{1024, 4096, kVocabulary},
                                         std::vector<std::int64_t>{2048, 4096, kVocabulary, kVocabulary}));

}  // namespace
}  // namespace shoal::engine
