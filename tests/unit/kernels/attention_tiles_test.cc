// The tile unit's attention, on an emulated unit: its arithmetic is tested on every machine with AVX512-BF16.

#if defined(__x86_64__)

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <vector>

#include "kernels/attention_kernels.h"
#include "kernels/attention_reference.h"
#include "kernels/attention_rig.h"
#include "kernels/emulated_tile_attention.h"

namespace shoal::kernels::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
const ChunkedAttention& kTiles = emulated_tile_attention();

void expect_close(std::span<const float> got, std::span<const float> wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  double sum = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - static_cast<double>(wanted[i]));
    if (!(error < kTileTolerance)) FAIL() << "value " << i << ": " << got[i] << ", reference " << wanted[i];
    sum += error;
  }
  EXPECT_LT(sum / static_cast<double>(got.size()), kTileMeanTolerance);
}

// What one head's rows are cut into.
struct Cut {
  std::int32_t rows = 1 << 30;   // of a call
  std::int32_t pages = 1 << 30;  // of a call; states are folded
};

// Queries of the last `rows` tokens of a sequence.
class LastRows {
 public:
  LastRows(const Heads& heads, Tokens tokens, std::int32_t rows)
      : heads_(heads),
        tokens_(std::move(tokens)),
        rows_(rows),
        pool_(heads, tokens_.rows / kPageTokens + 3, 5) {
    slots_ = pool_.take(tokens_.rows);
    const AttentionSpan all{0, tokens_.rows, 0, slots_};
    write_kv({.isa = Isa::kAvx512}, pool_.view(), heads_.shape(), {&all, 1}, tokens_.k_rows(0, tokens_.rows),
             tokens_.v_rows(0, tokens_.rows));
  }

  std::vector<float> reference() const {
    std::vector<float> out(size(), kNan);
    const AttentionSpan span{0, rows_, start(), slots_};
    attention_reference(pool_.view(), heads_.shape(), {&span, 1}, tokens_.q_rows(start(), rows_),
                        {out.data(), rows_, tokens_.q_columns});
    return out;
  }

  // Empty where some call refuses.
  std::vector<float> tiles(const Cut& cut) const {
    std::vector<float> out(size(), kNan);
    for (std::int32_t head = 0; head < heads_.query_heads();) {
      std::int32_t end = head + 1;
      while (end < heads_.query_heads() && kv_head(end) == kv_head(head)) ++end;
      const std::int32_t all = rows_ * (end - head);
      for (std::int32_t first = 0; first < all; first += cut.rows) {
        if (!some_rows(head, end - head, first, std::min(cut.rows, all - first), cut.pages, out.data()))
          return {};
      }
      head = end;
    }
    return out;
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{64}); }
  };

  std::size_t size() const {
    return static_cast<std::size_t>(rows_) * static_cast<std::size_t>(tokens_.q_columns);
  }
  std::int32_t start() const { return tokens_.rows - rows_; }
  std::int32_t kv_head(std::int32_t head) const { return heads_.kv_head_of[static_cast<std::size_t>(head)]; }

  bool some_rows(std::int32_t head, std::int32_t group, std::int32_t first, std::int32_t n,
                 std::int32_t pages, float* out) const {
    const std::int32_t d = heads_.head_dim;
    const AttentionShape shape = heads_.shape();
    AttentionRows rows;
    rows.q = tokens_.q_rows(start(), 1).data + head * d;
    rows.q_stride = tokens_.q_columns;
    rows.group = group;
    rows.first_row = first;
    rows.rows = n;
    rows.start = start();
    rows.head_dim = d;
    rows.q_factor = shape.scale * 1.44269504F;
    if (shape.softcap > 0) {
      rows.q_factor = shape.scale / shape.softcap;
      rows.cap_log2 = shape.softcap * 1.44269504F;
    }
    rows.window = shape.window;
    rows.tile_bytes = pool_.view().layout.tile_bytes();
    rows.pages.k_slab = pool_.view().k<std::byte>(shape.layer, kv_head(head), 0);
    rows.pages.v_slab = pool_.view().v<std::byte>(shape.layer, kv_head(head), 0);
    rows.pages.slots = slots_.data();
    const std::int32_t seen = rows.position(0) - shape.window + 1;
    const std::int32_t begin = shape.window > 0 ? std::max(0, seen) / kPageTokens : 0;
    const std::int32_t end = rows.position(n - 1) / kPageTokens + 1;
    // Not a Buffer: of those AddressSanitizer does not know the end.
    const std::unique_ptr<std::byte, Free> workspace(
        static_cast<std::byte*>(::operator new (kTiles.workspace_bytes(n, d), std::align_val_t{64})));
    std::byte* memory = workspace.get();
    float* to = out + head * d;
    if (end - begin <= pages) {
      rows.pages.begin = begin;
      rows.pages.end = end;
      rows.after = rows.pages;
      return kTiles.fold_rows(rows, memory, {}, to, tokens_.q_columns);
    }
    std::vector<float> total(static_cast<std::size_t>(n * (d + 2)), 0.0F);
    const AttentionState into{total.data(), total.data() + n, total.data() + 2 * n};
    std::fill_n(into.m, n, -std::numeric_limits<float>::infinity());
    for (std::int32_t at = begin; at < end; at += pages) {
      rows.pages.begin = at;
      rows.pages.end = std::min(end, at + pages);
      std::vector<float> part(total.size(), kNan);
      const AttentionState from{part.data(), part.data() + n, part.data() + 2 * n};
      if (!kTiles.fold_rows(rows, memory, from, nullptr, 0)) return false;
      kAttentionAvx512.fold_states(n, d, into, from);
    }
    for (std::int32_t r = 0; r < n; ++r) {
      const std::int32_t row = first + r;
      for (std::int32_t i = 0; i < d; ++i) {
        to[row / group * tokens_.q_columns + row % group * d + i] = into.o[r * d + i] / into.l[r];
      }
    }
    return true;
  }

  Heads heads_;
  Tokens tokens_;
  std::int32_t rows_;
  Pool pool_;
  std::vector<std::int32_t> slots_;
};

class AttentionTiles : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_bf16_dot()) GTEST_SKIP() << "no AVX512-BF16 here";
  }
};

std::vector<std::int32_t> one_head(std::int32_t group) {
  return std::vector<std::int32_t>(static_cast<std::size_t>(group), 0);
}

TEST_F(AttentionTiles, MatchTheReferenceAtEveryHeadSize) {
  for (std::int32_t d = 16; d <= 256; d += 16) {
    SCOPED_TRACE(d);
    const Heads heads{.head_dim = d};
    ASSERT_TRUE(kTiles.takes_head_dim(d));
    const LastRows prompt(heads, Tokens(heads, 90, 7), 90);
    expect_close(prompt.tiles({}), prompt.reference());
    const LastRows decode(heads, Tokens(heads, 300, 8), 1);
    expect_close(decode.tiles({}), decode.reference());
  }
  for (const std::int32_t d : {2, 8, 24, 42, 272}) EXPECT_FALSE(kTiles.takes_head_dim(d));
}

TEST_F(AttentionTiles, MatchTheReferenceForAnyCutOfRowsAndPages) {
  std::mt19937 random(3);
  const auto below = [&](std::int32_t n) {
    return static_cast<std::int32_t>(random() % static_cast<unsigned>(n));
  };
  for (int i = 0; i < 40; ++i) {
    SCOPED_TRACE(i);
    const std::int32_t group =
        std::vector<std::int32_t>{1, 2, 3, 4, 5, 7, 8, 16, 20}[static_cast<std::size_t>(below(9))];
    const Heads heads{.head_dim = 16 * (1 + below(6)),
                      .kv_head_of = one_head(group),
                      .window = below(3) == 0 ? 1 + below(300) : 0,
                      .softcap = below(4) == 0 ? 5.0F + static_cast<float>(below(50)) : 0.0F};
    const std::int32_t length = 1 + below(900);
    const std::int32_t rows = 1 + below(std::min(length, 1 + below(120)));
    const LastRows run(heads, Tokens(heads, length, random()), rows);
    const Cut cut{.rows = 1 + below(100), .pages = 8 * (1 + below(4))};
    expect_close(run.tiles(cut), run.reference());
  }
}

TEST_F(AttentionTiles, RaiseTheReferenceWhereScoresGrow) {
  // Scores climb by hundreds of octaves, far beyond what a sum of floats holds relative to the first.
  const Heads heads{.head_dim = 32, .kv_head_of = one_head(4)};
  for (const float growth : {0.05F, 1.0F, 5.0F}) {
    SCOPED_TRACE(growth);
    Tokens tokens(heads, 700, 9);
    for (std::int32_t t = 0; t < tokens.rows; ++t) {
      for (std::int32_t i = 0; i < 32; ++i) {
        // Powers of two and few bits: rounding to bf16 changes nothing, so that large scores stay comparable.
        tokens.k[static_cast<std::size_t>(t * 32 + i)] = i == 0 ? growth * static_cast<float>(t / 16) : 0.0F;
      }
    }
    for (float& x : tokens.q) x = 2;
    const LastRows run(heads, std::move(tokens), 70);
    for (const Cut& cut : {Cut{}, Cut{.rows = 4}, Cut{.rows = 33, .pages = 8}}) {
      expect_close(run.tiles(cut), run.reference());
    }
  }
}

TEST_F(AttentionTiles, InfiniteScoresLeaveOutOrPoison) {
  const Heads heads{.head_dim = 16, .kv_head_of = one_head(2)};
  Tokens tokens(heads, 80, 10);
  for (float& x : tokens.q) x = std::abs(x);
  for (std::int32_t i = 0; i < 16; ++i)
    tokens.k[static_cast<std::size_t>(i)] = -3e38F;  // score -inf: no weight
  const LastRows left_out(heads, tokens, 60);
  expect_close(left_out.tiles({}), left_out.reference());
  for (std::int32_t i = 0; i < 16; ++i) tokens.k[static_cast<std::size_t>(i)] = 3e38F;
  for (const float x : LastRows(heads, tokens, 60).tiles({})) ASSERT_TRUE(std::isnan(x));
}

TEST_F(AttentionTiles, DenormalsAreHarmless) {
  const Heads heads{.head_dim = 16, .kv_head_of = one_head(2)};
  Tokens tokens(heads, 50, 10);
  for (std::size_t i = 0; i < tokens.k.size(); i += 3) tokens.k[i] = tokens.v[i] = 1e-40F;
  for (std::size_t i = 0; i < tokens.q.size(); i += 5) tokens.q[i] = -1e-41F;
  const LastRows run(heads, std::move(tokens), 50);
  expect_close(run.tiles({}), run.reference());
}

TEST_F(AttentionTiles, RefuseWhereAValueThatSomeRowsSeeIsNotFinite) {
  for (const std::int32_t window : {0, 10}) {
    const Heads heads{.head_dim = 32, .kv_head_of = one_head(2), .window = window};
    for (const float bad : {kNan, std::numeric_limits<float>::infinity()}) {
      Tokens tokens(heads, 100, 12);
      tokens.v[70 * 32 + 5] = bad;
      EXPECT_TRUE(LastRows(heads, tokens, 40).tiles({}).empty());  // rows 60 to 99
      if (window > 0) {  // 70 lies behind all windows of rows 85 to 99
        EXPECT_FALSE(LastRows(heads, tokens, 15).tiles({}).empty());
      }
    }
  }
}

TEST_F(AttentionTiles, ANanThatAllRowsSeeReachesAll) {
  const Heads heads{.head_dim = 32, .kv_head_of = one_head(2)};
  for (const bool key : {true, false}) {
    Tokens tokens(heads, 100, 12);
    (key ? tokens.k : tokens.v)[10 * 32 + 5] = kNan;
    const std::vector<float> got = LastRows(heads, tokens, 40).tiles({});
    ASSERT_FALSE(got.empty());
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(std::isnan(got[i]), key || i % 32 == 5) << i;
    }
  }
}

TEST_F(AttentionTiles, ANanQueryReachesItsOwnRowOnly) {
  const Heads heads{.head_dim = 32, .kv_head_of = one_head(2)};
  Tokens tokens(heads, 60, 12);
  tokens.q[static_cast<std::size_t>(50 * tokens.q_columns + 3)] = kNan;
  const std::vector<float> got = LastRows(heads, tokens, 60).tiles({});
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(std::isnan(got[i]), i / 32 == 100) << i;
}

}  // namespace
}  // namespace shoal::kernels::test

#endif
