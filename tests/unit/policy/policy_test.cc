#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "policy/admission.h"
#include "policy/batch.h"
#include "policy/context_degree.h"
#include "policy/cost_model.h"

namespace shoal::policy {
namespace {

// A machine with a fixed cost per step and known slopes.
double machine(const StepShape& s) {
  return 2e-3 + 4e-4 * s.decode_rows + 1e-3 * s.prefill_rows + 2e-8 * s.decode_kv + 5e-8 * s.prefill_pairs;
}

StepShape random_shape(std::mt19937& random) {
  StepShape shape;
  for (unsigned i = random() % 16; i > 0; --i) shape.add_decode(static_cast<std::int64_t>(random() % 4000));
  if (random() % 2 == 0 || shape.decode_rows == 0)
    shape.add_prefill(static_cast<std::int64_t>(random() % 4000),
                      static_cast<std::int64_t>(1 + random() % 200));
  return shape;
}

TEST(CostModel, GuessesTooHighBeforeItKnows) {
  const CostModel model(CostModel::guess_for(135'000'000));
  StepShape shape;
  shape.add_prefill(0, 16);
  // A 135M model on two cores takes about 1 ms for a token.
  EXPECT_GT(model.predict(shape), 16 * 1e-3);
  EXPECT_LT(model.predict(shape), 2.0);
}

TEST(CostModel, FindsTheMachinesSlopes) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> noise(0.95, 1.05);
  CostModel model(CostModel::guess_for(135'000'000));
  for (int i = 0; i < 400; ++i) {
    const StepShape shape = random_shape(random);
    model.observe(shape, machine(shape) * noise(random));
  }
  for (int i = 0; i < 100; ++i) {
    const StepShape shape = random_shape(random);
    EXPECT_NEAR(model.predict(shape), machine(shape), 0.1 * machine(shape));
  }
}

TEST(CostModel, CoefficientsNeverGoBelowZero) {
  std::mt19937 random(2);
  CostModel model(CostModel::guess_for(1'000'000'000));
  for (int i = 0; i < 500; ++i) {
    model.observe(random_shape(random), 1e-4 * static_cast<double>(1 + random() % 10000));
    for (const double c : model.coefficients()) {
      ASSERT_GE(c, 0);
      ASSERT_TRUE(std::isfinite(c));
    }
  }
}

TEST(CostModel, OneStallChangesLittle) {
  std::mt19937 random(3);
  CostModel model(CostModel::guess_for(135'000'000));
  for (int i = 0; i < 200; ++i) {
    const StepShape shape = random_shape(random);
    model.observe(shape, machine(shape));
  }
  StepShape probe;
  probe.add_prefill(100, 64);
  const double before = model.predict(probe);
  model.observe(probe, 60 * machine(probe));
  EXPECT_NEAR(model.predict(probe), before, 0.1 * before);
}

TEST(CostModel, FollowsAMachineThatSlowsDown) {
  std::mt19937 random(4);
  CostModel model(CostModel::guess_for(135'000'000));
  for (int i = 0; i < 300; ++i) {
    const StepShape shape = random_shape(random);
    model.observe(shape, machine(shape));
  }
  for (int i = 0; i < 150; ++i) {
    const StepShape shape = random_shape(random);
    model.observe(shape, 3 * machine(shape));
  }
  StepShape probe;
  probe.add_prefill(100, 64);
  EXPECT_NEAR(model.predict(probe), 3 * machine(probe), 0.5 * machine(probe));
}

TEST(CostModel, HighPredictionCoversNearlyAllSteps) {
  std::mt19937 random(5);
  std::lognormal_distribution<double> noise(0, 0.15);
  CostModel model(CostModel::guess_for(135'000'000));
  int covered = 0;
  for (int i = 0; i < 1500; ++i) {
    const StepShape shape = random_shape(random);
    const double seconds = machine(shape) * noise(random);
    if (i >= 500) covered += seconds <= model.predict_high(shape);
    model.observe(shape, seconds);
  }
  EXPECT_GT(covered, 970);
}

TEST(CostModel, IgnoresDurationsThatAreNone) {
  CostModel model(CostModel::guess_for(1000));
  const auto before = model.coefficients();
  model.observe({1, 0, 0, 0}, 0);
  model.observe({1, 0, 0, 0}, -1);
  model.observe({1, 0, 0, 0}, std::nan(""));
  EXPECT_EQ(model.coefficients(), before);
}

CostModel fitted() {
  CostModel model(CostModel::guess_for(135'000'000));
  std::mt19937 random(6);
  for (int i = 0; i < 400; ++i) {
    const StepShape shape = random_shape(random);
    model.observe(shape, machine(shape));
  }
  return model;
}

StepShape decodes(int n) {
  StepShape shape;
  for (int i = 0; i < n; ++i) shape.add_decode(500);
  return shape;
}

// A worker of one coordinate.
std::vector<PrefillShare> share_alone(const CostModel& cost, const StepShape& decode,
                                      std::span<const PrefillCandidate> candidates,
                                      const BatchLimits& limits) {
  return share_prefill(cost, {&decode, 1}, candidates, limits);
}

std::int64_t total(const std::vector<PrefillShare>& shares) {
  std::int64_t sum = 0;
  for (const PrefillShare& share : shares) sum += share.tokens;
  return sum;
}

TEST(Batch, ChunkFillsTheTokenGapBesideDecode) {
  const CostModel model = fitted();
  const PrefillCandidate prompt{0, 4000, 4000, 0};
  const auto shares = share_alone(model, decodes(8), {&prompt, 1}, {});
  ASSERT_EQ(shares.size(), 1U);
  StepShape step = decodes(8);
  step.add_prefill(0, shares[0].tokens);
  EXPECT_LE(machine(step), 0.2);
  EXPECT_GT(machine(step), 0.12);
}

TEST(Batch, ChunkShrinksAsThePromptsContextGrows) {
  const CostModel model = fitted();
  const PrefillCandidate early{0, 4000, 4000, 0};
  const PrefillCandidate late{30000, 4000, 4000, 0};
  EXPECT_LT(total(share_alone(model, decodes(8), {&late, 1}, {})),
            total(share_alone(model, decodes(8), {&early, 1}, {})));
}

TEST(Batch, IdleMachineTakesLargerChunks) {
  const CostModel model = fitted();
  const PrefillCandidate prompt{0, 4000, 4000, 0};
  EXPECT_GT(total(share_alone(model, {}, {&prompt, 1}, {})),
            2 * total(share_alone(model, decodes(1), {&prompt, 1}, {})) - 16);
}

TEST(Batch, FloorHoldsWhateverDecodeTakes) {
  const CostModel model = fitted();
  const PrefillCandidate prompt{0, 4000, 4000, 0};
  EXPECT_EQ(total(share_alone(model, decodes(2000), {&prompt, 1}, {})), kPrefillFloor);
  const PrefillCandidate small[] = {{0, 10, 10, 0}, {0, 3000, 3000, 0}};
  EXPECT_EQ(total(share_alone(model, decodes(2000), small, {})), kPrefillFloor);
  const PrefillCandidate tiny{0, 5, 5, 0};
  EXPECT_EQ(total(share_alone(model, decodes(2000), {&tiny, 1}, {})), 5);
}

TEST(Batch, LeastRemainingWorkGoesFirstAndTheRestIsShared) {
  const CostModel model = fitted();
  const PrefillCandidate prompts[] = {{0, 4000, 4000, 0}, {0, 30, 30, 0}, {0, 50, 50, 0}};
  const auto shares = share_alone(model, decodes(4), prompts, {});
  ASSERT_EQ(shares.size(), 3U);
  EXPECT_EQ(shares[0].candidate, 1U);
  EXPECT_EQ(shares[0].tokens, 30);
  EXPECT_EQ(shares[1].candidate, 2U);
  EXPECT_EQ(shares[1].tokens, 50);
  EXPECT_EQ(shares[2].candidate, 0U);
  EXPECT_GT(shares[2].tokens, 0);
}

TEST(Batch, WhoWaitedLongerThanItsWorkGoesFirst) {
  const CostModel model = fitted();
  const PrefillCandidate prompts[] = {{0, 4000, 4000, 100}, {0, 30, 30, 0}};
  const auto shares = share_alone(model, decodes(4), prompts, {});
  ASSERT_FALSE(shares.empty());
  EXPECT_EQ(shares[0].candidate, 0U);
}

TEST(Batch, FixedChunkIsSharedAndExact) {
  const CostModel model = fitted();
  const PrefillCandidate prompts[] = {{0, 4, 4, 0}, {0, 100, 100, 0}};
  for (const std::int32_t chunk : {1, 7, 64}) {
    const auto shares = share_alone(model, decodes(1), prompts, {.fixed_chunk = chunk});
    EXPECT_EQ(total(shares), chunk);
    EXPECT_EQ(shares[0].candidate, 0U);
  }
}

TEST(Batch, NobodyGetsMoreThanItsLimitOrTheRowsOfAStep) {
  const CostModel model = fitted();
  const PrefillCandidate limited{0, 4000, 3, 0};
  EXPECT_EQ(total(share_alone(model, {}, {&limited, 1}, {})), 3);
  const PrefillCandidate blocked{0, 4000, 0, 0};
  EXPECT_TRUE(share_alone(model, {}, {&blocked, 1}, {}).empty());
  const PrefillCandidate large{0, 100000, 100000, 0};
  EXPECT_LE(total(share_alone(model, {}, {&large, 1}, {.token_gap = 1e6, .max_rows = 128})), 128);
  EXPECT_EQ(total(share_alone(model, {}, {&large, 1}, {.fixed_chunk = 4096, .max_rows = 128})), 128);
}

TEST(Admission, AdmitsWhileTheProjectedNeedFits) {
  struct Case {
    const char* name;
    std::int32_t running, max_running;
    std::vector<PoolDemand> pools;
    bool admitted;
  };
  const Case cases[] = {
      {"fits exactly", 1, 8, {{10, 4, 6}}, true},
      {"one page short", 1, 8, {{10, 4, 7}}, false},
      {"every pool counts", 1, 8, {{10, 0, 1}, {3, 0, 4}}, false},
      {"alone always", 0, 8, {{10, 0, 1000}}, true},
      {"no place left", 8, 8, {{10, 0, 1}}, false},
  };
  for (const Case& c : cases) EXPECT_EQ(admits({c.running, c.max_running, c.pools}), c.admitted) << c.name;
}

TEST(OutputLengths, ExpectsHalfTheLimitUntilItKnows) {
  const OutputLengths lengths;
  EXPECT_EQ(lengths.expect(0, 100), 50);
  EXPECT_EQ(lengths.expect(50, 100), 75);
  EXPECT_EQ(lengths.expect(99, 100), 100);
  EXPECT_EQ(lengths.expect(100, 100), 100);
}

TEST(OutputLengths, LearnsFromThoseThatCameAsFar) {
  OutputLengths lengths;
  for (int i = 1; i <= 100; ++i) lengths.add(i);
  EXPECT_NEAR(lengths.expect(0, 4096), 75, 1);
  EXPECT_NEAR(lengths.expect(60, 4096), 90, 1);
  EXPECT_EQ(lengths.expect(0, 20), 20);
  // Nobody was ever longer: half of what is left.
  EXPECT_EQ(lengths.expect(100, 200), 150);
}

TEST(OutputLengths, ForgetsTheOldest) {
  OutputLengths lengths;
  for (int i = 0; i < 256; ++i) lengths.add(1000);
  for (int i = 0; i < 256; ++i) lengths.add(10);
  EXPECT_EQ(lengths.expect(0, 4096), 10);
}

// Coordinates run side by side: each gets what one alone would, and a prompt of both as much again.
TEST(SharePrefill, CoordinatesAreFilledSideBySide) {
  const CostModel model = fitted();
  const StepShape decode[] = {decodes(8), decodes(8)};
  PrefillCandidate prompts[] = {{0, 4000, 4000, 0}, {0, 4000, 4000, 0}};
  prompts[0].lanes = {0, 1, 2};
  prompts[1].lanes = {1, 1, 2};
  const auto alone = share_alone(model, decodes(8), {&prompts[0], 1}, {});
  const auto both = share_prefill(model, decode, prompts, {});
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[0].tokens, alone[0].tokens);
  EXPECT_EQ(both[1].tokens, alone[0].tokens);
  PrefillCandidate shared{0, 40000, 40000, 0};
  shared.lanes = {1, 2, 2};
  const auto wide = share_prefill(model, decode, {&shared, 1}, {});
  ASSERT_EQ(wide.size(), 1U);
  EXPECT_GT(wide[0].tokens, alone[0].tokens * 3 / 2);
  // Of a chunk that is asked for, all coordinates together compute as much as it says.
  EXPECT_EQ(total(share_prefill(model, decode, {&shared, 1}, {.fixed_chunk = 512})), 512);
  // One that is full keeps nobody from the other.
  const StepShape uneven[] = {decodes(3000), decodes(1)};
  const auto rest = share_prefill(model, uneven, prompts, {});
  ASSERT_EQ(rest.size(), 2U);
  EXPECT_EQ(rest[0].tokens, kPrefillFloor);
  EXPECT_GT(rest[1].tokens, 10 * kPrefillFloor);
}

TEST(ContextDegree, ShortPromptsStayOnOneCoordinate) {
  EXPECT_EQ(choose_degree({2000, 100000, 4, 0}), 1);
  EXPECT_EQ(choose_degree({14000, 100000, 2, 0}), 2);
  EXPECT_EQ(choose_degree({5000, 100000, 4, 0}), 2);
  EXPECT_EQ(choose_degree({100000, 200000, 4, 0}), 4);
  EXPECT_EQ(choose_degree({2000, 1000, 4, 0}), 4);  // more than one pool holds
  EXPECT_EQ(choose_degree({5, 1000, 4, 3}), 3);
  EXPECT_EQ(choose_degree({5, 1000, 2, 3}), 2);
}

TEST(ContextDegree, FewerBytesTravel) {
  PassingInput input{.rows = 16, .owners = 1, .pages = 100, .results = 1, .page_bytes = 65536};
  input.query_bytes = input.result_bytes = 8192;
  EXPECT_TRUE(passes_queries(input));  // 256 KiB against 6.4 MiB
  input.rows = 8192;
  EXPECT_FALSE(passes_queries(input));
  input.rows = 16;
  input.pages = 0;
  EXPECT_FALSE(passes_queries(input));
}

}  // namespace
}  // namespace shoal::policy
