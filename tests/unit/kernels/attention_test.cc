#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <bit>

#include "kernels/attention_reference.h"
#include "kernels/attention_rig.h"

namespace shoal::kernels::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Strict mode, which alone promises bits.
Context on(Isa isa, ThreadPool* pool = nullptr) {
  Context context;
  context.isa = isa;
  context.pool = pool;
  context.strict = true;
  return context;
}

Context default_on(Isa isa, ThreadPool* pool = nullptr) {
  Context context = on(isa, pool);
  context.strict = false;
  return context;
}

// Scores up to about 10 in f32 with sums of head_dim terms err by some 1e-6 each, weights by as much
// relatively, values are of order 1: 2e-5 leaves a margin of about 5 and would not pass a bf16 slip (4e-3).
// Tiles take queries and weights in bf16: see attention_tiles_test.cc.
double tolerance(const Context& context) {
  return context.isa == Isa::kAmx && !context.strict ? kTileTolerance : 2e-5;
}

void expect_close(const Context& context, std::span<const float> got, std::span<const float> wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - static_cast<double>(wanted[i]));
    // Negated, so that NaN fails.
    if (!(error < tolerance(context)))
      FAIL() << "value " << i << ": " << got[i] << ", reference " << wanted[i];
  }
}

void expect_matches_reference(const Heads& heads, std::int32_t tokens_in_sequence) {
  const Tokens tokens(heads, tokens_in_sequence, 7);
  Pool pool(heads, tokens.rows / kPageTokens + 2, 3);
  const std::vector<std::int32_t> slots = pool.take(tokens.rows);
  const AttentionSpan span{0, tokens.rows, 0, slots};
  const AttentionShape shape = heads.shape();
  write_kv(on(Isa::kScalar), pool.view(), shape, {&span, 1}, tokens.k_rows(0, tokens.rows),
           tokens.v_rows(0, tokens.rows));
  std::vector<float> wanted(tokens.q.size(), kNan);
  attention_reference(pool.view(), shape, {&span, 1}, tokens.q_rows(0, tokens.rows),
                      {wanted.data(), tokens.rows, tokens.q_columns});
  for (const Isa isa : isas()) {
    SCOPED_TRACE(isa_name(isa));
    for (const Context& context : {on(isa), default_on(isa)}) {
      std::vector<float> got(tokens.q.size(), kNan);
      attention(context, pool.view(), shape, {&span, 1}, tokens.q_rows(0, tokens.rows),
                {got.data(), tokens.rows, tokens.q_columns});
      expect_close(context, got, wanted);
    }
  }
}

TEST(Attention, MatchesTheReferenceAtEveryHeadSize) {
  for (const std::int32_t head_dim : {2, 8, 16, 42, 64, 80, 96, 128, 256}) {
    for (const KvDType dtype : {KvDType::kBf16, KvDType::kF32}) {
      SCOPED_TRACE(head_dim);
      expect_matches_reference({.head_dim = head_dim, .dtype = dtype}, 75);
    }
  }
}

TEST(Attention, MatchesTheReferenceAcrossSegments) {
  expect_matches_reference({.head_dim = 32, .kv_head_of = {0, 0}}, 600);
}

TEST(Attention, MatchesTheReferenceForAnyHeadMap) {
  const std::vector<std::vector<std::int32_t>> maps = {
      {0}, {0, 1, 2}, {0, 0, 0, 1}, {0, 1, 1, 1, 1, 1, 2, 2}, std::vector<std::int32_t>(71, 0)};
  for (const auto& map : maps) expect_matches_reference({.head_dim = 16, .kv_head_of = map}, 40);
}

TEST(Attention, MatchesTheReferenceWithAWindow) {
  for (const std::int32_t window : {1, 2, 31, 32, 33, 64, 100, 1000}) {
    SCOPED_TRACE(window);
    expect_matches_reference({.head_dim = 16, .kv_head_of = {0, 0, 0}, .window = window}, 330);
  }
}

TEST(Attention, MatchesTheReferenceWithASoftcap) {
  for (const float softcap : {1.0F, 5.0F, 50.0F}) {
    expect_matches_reference({.head_dim = 64, .softcap = softcap}, 70);
  }
}

TEST(Attention, PagesBehindTheWindowNeedNoSlot) {
  const Heads heads{.head_dim = 16, .window = 40};
  const Tokens tokens(heads, 700, 5);
  for (const Isa isa : isas()) {
    const std::vector<float> wanted = run_sequence(on(isa), heads, tokens, 700);
    Pool pool(heads, 30, 2);
    std::vector<std::int32_t> slots = pool.take(tokens.rows);
    const AttentionShape shape = heads.shape();
    for (std::int32_t at = 0; at < tokens.rows; at += 50) {
      for (std::int32_t page = 0; (page + 1) * kPageTokens <= at - heads.window + 1; ++page) {
        slots[static_cast<std::size_t>(page)] = kNoSlot;
      }
      const AttentionSpan span{0, 50, at, slots};
      write_kv(on(isa), pool.view(), shape, {&span, 1}, tokens.k_rows(at, 50), tokens.v_rows(at, 50));
      std::vector<float> got(static_cast<std::size_t>(50 * tokens.q_columns), kNan);
      attention(on(isa), pool.view(), shape, {&span, 1}, tokens.q_rows(at, 50),
                {got.data(), 50, tokens.q_columns});
      EXPECT_TRUE(same_bits(
          got, std::span(wanted).subspan(static_cast<std::size_t>(at * tokens.q_columns), got.size())));
    }
  }
}

TEST(Attention, BitsDoNotDependOnChunking) {
  for (const KvDType dtype : {KvDType::kBf16, KvDType::kF32}) {
    for (const Heads& heads : {Heads{.head_dim = 64, .dtype = dtype},
                               Heads{.head_dim = 24, .window = 45, .softcap = 20, .dtype = dtype}}) {
      const Tokens tokens(heads, 333, 11);
      for (const Isa isa : isas()) {
        SCOPED_TRACE(isa_name(isa));
        const std::vector<float> whole = run_sequence(on(isa), heads, tokens, 333);
        for (const std::int32_t chunk : {1, 7, 64}) {
          EXPECT_TRUE(same_bits(run_sequence(on(isa), heads, tokens, chunk), whole)) << "chunk " << chunk;
        }
      }
    }
  }
}

TEST(Attention, BitsDoNotDependOnThreadsOrSlots) {
  const Heads heads{.head_dim = 64};
  const Tokens tokens(heads, 1100, 12);
  for (const Isa isa : isas()) {
    if (isa == Isa::kScalar) continue;
    SCOPED_TRACE(isa_name(isa));
    const std::vector<float> wanted = run_sequence(on(isa), heads, tokens, 1100);
    for (const int threads : {1, 2, 3, 4}) {
      ThreadPool pool({.threads = threads, .pin = false});
      EXPECT_TRUE(same_bits(run_sequence(on(isa, &pool), heads, tokens, 1100, 77), wanted)) << threads;
    }
  }
}

TEST(Attention, OneDeepRowIsCutOverThreadsWithTheSameBits) {
  // One KV head: nothing to share but the segments.
  const Heads heads{.head_dim = 64, .kv_head_of = {0, 0, 0, 0}};
  const Tokens tokens(heads, 3000, 13);
  for (const Isa isa : isas()) {
    if (isa == Isa::kScalar) continue;
    Pool pages(heads, 100, 4);
    const std::vector<std::int32_t> slots = pages.take(tokens.rows);
    const AttentionSpan all{0, tokens.rows, 0, slots};
    const AttentionSpan last{0, 1, tokens.rows - 1, slots};
    write_kv(on(isa), pages.view(), heads.shape(), {&all, 1}, tokens.k_rows(0, tokens.rows),
             tokens.v_rows(0, tokens.rows));
    std::vector<float> wanted(static_cast<std::size_t>(tokens.q_columns));
    attention_reference(pages.view(), heads.shape(), {&last, 1}, tokens.q_rows(tokens.rows - 1, 1),
                        {wanted.data(), 1, tokens.q_columns});
    std::vector<float> alone(wanted.size(), kNan);
    attention(on(isa), pages.view(), heads.shape(), {&last, 1}, tokens.q_rows(tokens.rows - 1, 1),
              {alone.data(), 1, tokens.q_columns});
    expect_close(on(isa), alone, wanted);
    for (const int threads : {2, 3, 4}) {
      ThreadPool pool({.threads = threads, .pin = false});
      std::vector<float> got(wanted.size(), kNan);
      attention(on(isa, &pool), pages.view(), heads.shape(), {&last, 1}, tokens.q_rows(tokens.rows - 1, 1),
                {got.data(), 1, tokens.q_columns});
      EXPECT_TRUE(same_bits(got, alone)) << threads << " threads";
      attention(default_on(isa, &pool), pages.view(), heads.shape(), {&last, 1},
                tokens.q_rows(tokens.rows - 1, 1), {got.data(), 1, tokens.q_columns});
      expect_close(default_on(isa), got, wanted);
    }
  }
}

TEST(Attention, ADeepRowBesideAPromptIsSharedWithTheSameBits) {
  const Heads heads{.head_dim = 32, .kv_head_of = {0, 0, 1, 1}};
  const Tokens deep(heads, 2000, 14);
  const Tokens prompt(heads, 90, 15);
  for (const Isa isa : isas()) {
    if (isa == Isa::kScalar) continue;
    const std::vector<float> deep_alone = run_sequence(on(isa), heads, deep, 2000);
    const std::vector<float> prompt_alone = run_sequence(on(isa), heads, prompt, 90);
    Pool pages(heads, 80, 6);
    const std::vector<std::int32_t> deep_slots = pages.take(2000);
    const std::vector<std::int32_t> prompt_slots = pages.take(90);
    const AttentionSpan all{0, 2000, 0, deep_slots};
    const std::vector<AttentionSpan> spans = {{0, 90, 0, prompt_slots}, {90, 1, 1999, deep_slots}};
    write_kv(on(isa), pages.view(), heads.shape(), {&all, 1}, deep.k_rows(0, 2000), deep.v_rows(0, 2000));
    write_kv(on(isa), pages.view(), heads.shape(), {spans.data(), 1}, prompt.k_rows(0, 90),
             prompt.v_rows(0, 90));
    std::vector<float> q = prompt.q;
    q.insert(q.end(), deep.q.end() - deep.q_columns, deep.q.end());
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool({.threads = threads, .pin = false});
      std::vector<float> got(q.size(), kNan);
      attention(on(isa, &pool), pages.view(), heads.shape(), spans, {q.data(), 91, deep.q_columns},
                {got.data(), 91, deep.q_columns});
      EXPECT_TRUE(same_bits(std::span(got).first(prompt_alone.size()), prompt_alone)) << threads;
      EXPECT_TRUE(same_bits(std::span(got).subspan(prompt_alone.size()),
                            std::span(deep_alone).last(static_cast<std::size_t>(deep.q_columns))))
          << threads;
    }
  }
}

TEST(Attention, OtherSequencesBesideChangeNothing) {
  const Heads heads{.head_dim = 40};
  const std::vector<std::int32_t> lengths = {1, 290, 33, 64, 5};
  ThreadPool threads({.threads = 2, .pin = false});
  for (const Isa isa : isas()) {
    SCOPED_TRACE(isa_name(isa));
    const Context context = on(isa, &threads);
    // All in one call, rows one after another; each against itself alone.
    const Tokens tokens(heads, std::accumulate(lengths.begin(), lengths.end(), 0), 21);
    Pool pool(heads, 30, 9);
    std::vector<std::vector<std::int32_t>> slots;
    for (const std::int32_t n : lengths) slots.push_back(pool.take(n));
    std::vector<AttentionSpan> spans;
    std::int32_t row = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      spans.push_back({row, lengths[i], 0, slots[i]});
      row += lengths[i];
    }
    const AttentionShape shape = heads.shape();
    write_kv(context, pool.view(), shape, spans, tokens.k_rows(0, tokens.rows),
             tokens.v_rows(0, tokens.rows));
    std::vector<float> together(tokens.q.size(), kNan);
    attention(context, pool.view(), shape, spans, tokens.q_rows(0, tokens.rows),
              {together.data(), tokens.rows, tokens.q_columns});
    for (const AttentionSpan& span : spans) {
      Pool own(heads, 12, 10);
      const std::vector<std::int32_t> own_slots = own.take(span.rows);
      const AttentionSpan alone{0, span.rows, 0, own_slots};
      write_kv(on(isa), own.view(), shape, {&alone, 1}, tokens.k_rows(span.first_row, span.rows),
               tokens.v_rows(span.first_row, span.rows));
      std::vector<float> got(static_cast<std::size_t>(span.rows * tokens.q_columns), kNan);
      attention(on(isa), own.view(), shape, {&alone, 1}, tokens.q_rows(span.first_row, span.rows),
                {got.data(), span.rows, tokens.q_columns});
      EXPECT_TRUE(
          same_bits(got, std::span(together).subspan(
                             static_cast<std::size_t>(span.first_row * tokens.q_columns), got.size())));
    }
  }
}

// Prompts, chunks of prompts and decoded tokens of several sequences in one call, as a step has them.
TEST(Attention, MixedBatchesMatchTheReferenceInBothModes) {
  std::mt19937 random(5);
  const auto below = [&](std::int32_t n) {
    return static_cast<std::int32_t>(random() % static_cast<unsigned>(n));
  };
  ThreadPool two({.threads = 2, .pin = false});
  ThreadPool three({.threads = 3, .pin = false});
  for (int i = 0; i < 12; ++i) {
    SCOPED_TRACE(i);
    const std::int32_t group = 1 + below(9);
    Heads heads{.head_dim = 2 * (1 + below(70)),
                .kv_head_of = std::vector<std::int32_t>(static_cast<std::size_t>(group), 0),
                .window = below(3) == 0 ? 1 + below(200) : 0,
                .softcap = below(4) == 0 ? 10.0F : 0.0F,
                .dtype = below(4) == 0 ? KvDType::kF32 : KvDType::kBf16};
    if (below(2) == 0) heads.head_dim = heads.head_dim / 32 * 16 + 16;  // what tiles take, too
    heads.kv_head_of.insert(heads.kv_head_of.end(), static_cast<std::size_t>(1 + below(4)), 1);
    const AttentionShape shape = heads.shape();
    Pool pool(heads, 100, random());
    std::vector<std::vector<std::int32_t>> slots;
    std::vector<AttentionSpan> spans;
    std::vector<float> q;
    for (int sequence = 0; sequence < 4; ++sequence) {
      const std::int32_t length = 1 + below(700);
      const std::int32_t rows = below(2) == 0 ? 1 : 1 + below(std::min(length, 150));
      const Tokens tokens(heads, length, random());
      slots.push_back(pool.take(length));
      const AttentionSpan all{0, length, 0, slots.back()};
      write_kv(on(Isa::kScalar), pool.view(), shape, {&all, 1}, tokens.k_rows(0, length),
               tokens.v_rows(0, length));
      const auto first_row = static_cast<std::int32_t>(q.size()) / tokens.q_columns;
      spans.push_back({first_row, rows, length - rows, slots.back()});
      q.insert(q.end(), tokens.q.end() - static_cast<std::ptrdiff_t>(rows) * tokens.q_columns,
               tokens.q.end());
    }
    const std::int32_t columns = heads.query_heads() * heads.head_dim;
    const auto rows = static_cast<std::int32_t>(q.size()) / columns;
    std::vector<float> wanted(q.size(), kNan);
    attention_reference(pool.view(), shape, spans, {q.data(), rows, columns}, {wanted.data(), rows, columns});
    for (const Isa isa : isas()) {
      SCOPED_TRACE(isa_name(isa));
      for (const Context& context : {on(isa, &two), default_on(isa, &two), default_on(isa, &three)}) {
        std::vector<float> got(q.size(), kNan);
        attention(context, pool.view(), shape, spans, {q.data(), rows, columns}, {got.data(), rows, columns});
        expect_close(context, got, wanted);
      }
    }
  }
}

// Later scores exceed the first ones by hundreds of octaves: more than the range of a sum relative to those.
TEST(Attention, GrowingScoresMatchTheReference) {
  const Heads heads{.head_dim = 16, .kv_head_of = {0, 0, 0}};
  for (const float growth : {0.1F, 3.0F, 20.0F}) {
    SCOPED_TRACE(growth);
    Tokens tokens(heads, 300, 9);
    for (std::size_t i = 0; i < tokens.k.size(); ++i) {
      // One dimension of few bits carries the score, so that large scores stay exact.
      tokens.k[i] = i % 16 == 0 ? growth * static_cast<float>(i / 16 / 16) : 0.0F;
    }
    for (float& x : tokens.q) x = 2;
    Pool pool(heads, 12, 3);
    const std::vector<std::int32_t> slots = pool.take(300);
    const AttentionSpan span{0, 300, 0, slots};
    write_kv(on(Isa::kScalar), pool.view(), heads.shape(), {&span, 1}, tokens.k_rows(0, 300),
             tokens.v_rows(0, 300));
    std::vector<float> wanted(tokens.q.size(), kNan);
    attention_reference(pool.view(), heads.shape(), {&span, 1}, tokens.q_rows(0, 300),
                        {wanted.data(), 300, tokens.q_columns});
    for (const Isa isa : isas()) {
      SCOPED_TRACE(isa_name(isa));
      for (const Context& context : {on(isa), default_on(isa)}) {
        std::vector<float> got(tokens.q.size(), kNan);
        attention(context, pool.view(), heads.shape(), {&span, 1}, tokens.q_rows(0, 300),
                  {got.data(), 300, tokens.q_columns});
        // Scores of 1000 differ by 1e-4 in f32.
        for (std::size_t i = 0; i < got.size(); ++i) {
          const double error = std::abs(static_cast<double>(got[i]) - static_cast<double>(wanted[i]));
          ASSERT_LT(error, tolerance(context) + 1e-3) << i;
        }
      }
    }
  }
}

TEST(Attention, ScoresOfMinusInfinityHaveNoWeightAndThoseOfInfinityPoison) {
  const Heads heads{.head_dim = 16, .kv_head_of = {0, 0}};
  Tokens tokens(heads, 80, 10);
  for (float& x : tokens.q) x = std::abs(x);
  const auto first_key = [&](float x) { std::fill_n(tokens.k.begin(), 16, x); };
  for (const Isa isa : isas()) {
    SCOPED_TRACE(isa_name(isa));
    for (const Context& context : {on(isa), default_on(isa)}) {
      first_key(-3e38F);
      const std::vector<float> got = run_sequence(context, heads, tokens, 80);
      // From the second row on as if the first key were not there, which a key far below all others comes to.
      first_key(-1e4F);
      const std::vector<float> wanted = run_sequence(context, heads, tokens, 80);
      const auto row = static_cast<std::size_t>(tokens.q_columns);
      expect_close(context, std::span(got).subspan(row), std::span(wanted).subspan(row));
      first_key(3e38F);
      for (const float x : run_sequence(context, heads, tokens, 80)) ASSERT_TRUE(std::isnan(x));
    }
  }
}

TEST(Attention, DenormalsMatchTheReference) {
  const Heads heads{.head_dim = 16, .kv_head_of = {0, 0}};
  Tokens tokens(heads, 80, 10);
  for (std::size_t i = 0; i < tokens.k.size(); i += 3) tokens.k[i] = tokens.v[i] = 1e-40F;
  for (std::size_t i = 0; i < tokens.q.size(); i += 5) tokens.q[i] = -1e-41F;
  Tokens zeros = tokens;
  for (auto* values : {&zeros.q, &zeros.k, &zeros.v}) {
    for (float& x : *values) x = std::abs(x) < 1e-38F ? 0.0F : x;
  }
  for (const Isa isa : isas()) {
    SCOPED_TRACE(isa_name(isa));
    for (const Context& context : {on(isa), default_on(isa)}) {
      expect_close(context, run_sequence(context, heads, tokens, 80),
                   run_sequence(context, heads, zeros, 80));
    }
  }
}

// The default mode looks at many keys at a time, and must still keep apart what a mask keeps apart.
TEST(Attention, ANanRowReachesLaterRowsOnlyInDefaultMode) {
  for (const std::int32_t window : {0, 30}) {
    const Heads heads{.head_dim = 16, .kv_head_of = {0, 0}, .window = window};
    const Tokens tokens(heads, 150, 31);
    for (const float poison : {kNan, std::numeric_limits<float>::infinity()}) {
      Tokens poisoned = tokens;
      const std::int32_t bad = 75;
      poisoned.v[static_cast<std::size_t>(bad * tokens.kv_columns + 4)] = poison;
      for (const Isa isa : isas()) {
        SCOPED_TRACE(isa_name(isa));
        const Context context = default_on(isa);
        const std::vector<float> clean = run_sequence(context, heads, tokens, 150);
        const std::vector<float> got = run_sequence(context, heads, poisoned, 150);
        for (std::int32_t row = 0; row < 150; ++row) {
          const bool sees = row >= bad && (window == 0 || row < bad + window);
          for (std::int32_t c = 0; c < tokens.q_columns; ++c) {
            const auto i = static_cast<std::size_t>(row * tokens.q_columns + c);
            if (sees && c % 16 == 4) {
              ASSERT_FALSE(std::isfinite(got[i])) << row;
            } else {
              ASSERT_NEAR(got[i], clean[i], tolerance(context)) << row;
            }
          }
        }
      }
    }
  }
}

TEST(Attention, ANanRowReachesLaterRowsOnly) {
  const Heads heads{.head_dim = 16, .kv_head_of = {0, 0}};
  Tokens tokens(heads, 60, 31);
  for (const Isa isa : isas()) {
    const std::vector<float> clean = run_sequence(on(isa), heads, tokens, 60);
    Tokens poisoned = tokens;
    const std::int32_t bad = 45;
    poisoned.k[static_cast<std::size_t>(bad * tokens.kv_columns + 3)] = kNan;
    poisoned.v[static_cast<std::size_t>(bad * tokens.kv_columns + 4)] = kNan;
    const std::vector<float> got = run_sequence(on(isa), heads, poisoned, 60);
    const auto before = static_cast<std::size_t>(bad * tokens.q_columns);
    EXPECT_TRUE(same_bits(std::span(got).first(before), std::span(clean).first(before))) << isa_name(isa);
    for (std::size_t i = before; i < got.size(); ++i) ASSERT_TRUE(std::isnan(got[i])) << i;
  }
}

TEST(Attention, StridesWiderThanTheRowAreKept) {
  const Heads heads{.head_dim = 16, .kv_head_of = {0, 0, 1}};
  const Tokens tokens(heads, 37, 41);
  for (const Isa isa : isas()) {
    const std::vector<float> wanted = run_sequence(on(isa), heads, tokens, 37);
    const std::int32_t stride =
        tokens.q_columns + 2 * tokens.kv_columns + 5;  // q, k, v side by side, and a gap
    std::vector<float> joined(static_cast<std::size_t>(37 * stride), kNan);
    for (std::int32_t r = 0; r < 37; ++r) {
      float* p = joined.data() + r * stride;
      std::copy_n(tokens.q_rows(r, 1).data, tokens.q_columns, p);
      std::copy_n(tokens.k_rows(r, 1).data, tokens.kv_columns, p + tokens.q_columns);
      std::copy_n(tokens.v_rows(r, 1).data, tokens.kv_columns, p + tokens.q_columns + tokens.kv_columns);
    }
    Pool pool(heads, 3, 8);
    const std::vector<std::int32_t> slots = pool.take(37);
    const AttentionSpan span{0, 37, 0, slots};
    float* base = joined.data();
    const std::int64_t kv = tokens.kv_columns;
    write_kv(on(isa), pool.view(), heads.shape(), {&span, 1}, {base + tokens.q_columns, 37, kv, stride},
             {base + tokens.q_columns + kv, 37, kv, stride});
    std::vector<float> out(static_cast<std::size_t>(37 * stride), 5.0F);
    attention(on(isa), pool.view(), heads.shape(), {&span, 1}, {base, 37, tokens.q_columns, stride},
              {out.data(), 37, tokens.q_columns, stride});
    for (std::int32_t r = 0; r < 37; ++r) {
      EXPECT_TRUE(
          same_bits({out.data() + r * stride, static_cast<std::size_t>(tokens.q_columns)},
                    {wanted.data() + r * tokens.q_columns, static_cast<std::size_t>(tokens.q_columns)}));
      EXPECT_EQ(out[static_cast<std::size_t>(r * stride + tokens.q_columns)], 5.0F);
    }
  }
}

TEST(Attention, NoSpansAndEmptySpansDoNothing) {
  const Heads heads{.head_dim = 16};
  Pool pool(heads, 2, 1);
  const AttentionSpan empty{};
  for (const Isa isa : isas()) {
    attention(on(isa), pool.view(), heads.shape(), {}, {}, {});
    attention(on(isa), pool.view(), heads.shape(), {&empty, 1}, {}, {});
    write_kv(on(isa), pool.view(), heads.shape(), {&empty, 1}, {}, {});
  }
  EXPECT_EQ(*pool.view().k<std::uint8_t>(0, 0, 0), 0xff);
}

TEST(WriteKv, RoundsToNearestEvenAndKeepsNan) {
  const Heads heads{.head_dim = 18, .kv_head_of = {0}};
  // Bits just below, at and above the middle between two bf16 values, both parities; infinity; NaN.
  const std::vector<std::uint32_t> bits = {0x3f807fff, 0x3f808000, 0x3f808001, 0x3f818000,
                                           0xbf818000, 0x7f800000, 0x7fffffff, 0x7f800001,
                                           0x00000000, 0x80000000, 0x7f7fffff, 0x3f800000};
  Tokens tokens(heads, 33, 1);
  for (std::size_t i = 0; i < tokens.k.size(); ++i) {
    tokens.k[i] = std::bit_cast<float>(bits[i % bits.size()]);
    tokens.v[i] = std::bit_cast<float>(bits[(i + 5) % bits.size()]);
  }
  for (const Isa isa : isas()) {
    Pool pool(heads, 2, 1);
    const std::vector<std::int32_t> slots = pool.take(33);
    const AttentionSpan span{0, 33, 0, slots};
    write_kv(on(isa), pool.view(), heads.shape(1), {&span, 1}, tokens.k_rows(0, 33), tokens.v_rows(0, 33));
    for (std::int32_t t = 0; t < 33; ++t) {
      const std::int32_t slot = slots[static_cast<std::size_t>(t / 32)];
      const KvLayout& layout = pool.view().layout;
      for (int d = 0; d < 18; ++d) {
        const auto i = static_cast<std::size_t>(t * 18 + d);
        EXPECT_EQ(pool.view().k<Bf16>(1, 0, slot)[layout.k_element(d, t % 32)], f32_to_bf16(tokens.k[i]));
        EXPECT_EQ(pool.view().v<Bf16>(1, 0, slot)[layout.v_element(d, t % 32)], f32_to_bf16(tokens.v[i]));
      }
    }
  }
}

TEST(WriteKv, TouchesOnlyTheTokensOfItsSpans) {
  const Heads heads{.head_dim = 8, .kv_head_of = {0, 1}, .dtype = KvDType::kF32};
  const Tokens tokens(heads, 40, 2);
  for (const Isa isa : isas()) {
    Pool pool(heads, 4, 1);
    const std::vector<std::int32_t> slots = pool.take(64);
    const AttentionSpan span{3, 20, 21,
                             slots};  // rows 3.. at positions 21..40: the end of one page, half of the next
    write_kv(on(isa), pool.view(), heads.shape(1), {&span, 1}, tokens.k_rows(0, 40), tokens.v_rows(0, 40));
    const KvLayout& layout = pool.view().layout;
    for (std::int32_t layer = 0; layer < 2; ++layer) {
      for (std::int32_t position = 0; position < 64; ++position) {
        const bool written = layer == 1 && position >= 21 && position < 41;
        const std::int32_t slot = slots[static_cast<std::size_t>(position / 32)];
        for (std::int32_t head = 0; head < 2; ++head) {
          for (int d = 0; d < 8; ++d) {
            const float key = pool.view().k<float>(layer, head, slot)[layout.k_element(d, position % 32)];
            const float value = pool.view().v<float>(layer, head, slot)[layout.v_element(d, position % 32)];
            if (!written) {
              EXPECT_TRUE(std::isnan(key) && std::isnan(value));
              continue;
            }
            const auto row = static_cast<std::size_t>(position - 21 + 3);
            const auto i = row * 16 + static_cast<std::size_t>(head * 8 + d);
            EXPECT_EQ(key, tokens.k[i]);
            EXPECT_EQ(value, tokens.v[i]);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace shoal::kernels::test
