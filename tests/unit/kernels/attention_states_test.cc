// Attention over parts of a sequence's pages, put together again.

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/attention_rig.h"
#include "layout/kv_groups.h"

namespace shoal::kernels::test {
namespace {

struct Rows {
  explicit Rows(std::int64_t rows, std::int64_t columns)
      : values(static_cast<std::size_t>(rows * columns), std::nanf("")), view(values.data(), rows, columns) {}
  std::vector<float> values;
  MatrixView<float> view;
};

// All of a sequence written, its last rows attended in one go, and by pieces of pages.
class AttentionStates : public testing::TestWithParam<Isa> {
 protected:
  void expect_whole(const Heads& heads, std::int32_t length, std::int32_t rows, bool strict) {
    SCOPED_TRACE(testing::Message() << "length " << length << " rows " << rows << " window " << heads.window);
    ThreadPool threads({.threads = 2, .spin = std::chrono::microseconds(0), .pin = false});
    const Context context{&threads, GetParam(), Activations::kAuto, strict};
    const Tokens tokens(heads, length, 7);
    Pool pool(heads, length / kPageTokens + 4, 3);
    const auto slots = pool.take(length);
    const AttentionShape shape = heads.shape();
    const AttentionSpan all{0, length, 0, slots};
    write_kv(context, pool.view(), shape, {&all, 1}, tokens.k_rows(0, length), tokens.v_rows(0, length));

    const std::int32_t start = length - rows;
    AttentionSpan span{0, rows, start, slots};
    Rows whole(rows, tokens.q_columns);
    attention(context, pool.view(), shape, {&span, 1}, tokens.q_rows(start, rows), whole.view);

    // Runs that begin a segment, and single pages: cut after 3 pages of every segment.
    const std::int64_t width = state_width(shape.query_heads, shape.head_dim);
    Rows total(rows, width), segment(rows, width);
    clear_attention_states(shape, total.view);
    const std::int32_t pages = (length + kPageTokens - 1) / kPageTokens;
    for (std::int32_t begin = first_visible_page(start, shape.window); begin < pages;) {
      const std::int32_t end = std::min(pages, (begin / kSegmentPages + 1) * kSegmentPages);
      clear_attention_states(shape, segment.view);
      for (std::int32_t at = begin; at < end;) {
        span.page_begin = at;
        span.page_end = at == begin ? std::min(end, begin + 3) : at + 1;
        Rows part(rows, width);
        attention_states(context, pool.view(), shape, {&span, 1}, tokens.q_rows(start, rows), part.view);
        fold_attention_states(context, shape, segment.view, part.view);
        at = span.page_end;
      }
      fold_attention_states(context, shape, total.view, segment.view);
      begin = end;
    }
    Rows folded(rows, tokens.q_columns);
    finish_attention_states(context, shape, total.view, folded.view);
    if (strict) {
      EXPECT_TRUE(same_bits(folded.values, whole.values));
    } else {
      for (std::size_t i = 0; i < folded.values.size(); ++i)
        ASSERT_NEAR(folded.values[i], whole.values[i], kTileTolerance) << i;
    }

    // The shorter form says the same.
    Rows packed(rows, packed_state_width(shape.query_heads, shape.head_dim)), again(rows, width);
    pack_attention_states(context, shape, total.view, packed.view);
    unpack_attention_states(context, shape, packed.view, again.view);
    Rows unpacked(rows, tokens.q_columns);
    finish_attention_states(context, shape, again.view, unpacked.view);
    for (std::size_t i = 0; i < folded.values.size(); ++i)
      ASSERT_NEAR(folded.values[i], unpacked.values[i], 1e-6) << i;
  }
};

TEST_P(AttentionStates, PiecesFoldToTheWhole) {
  for (const bool strict : {true, false}) {
    for (const std::int32_t window : {0, 40, 300}) {
      Heads heads;
      heads.window = window;
      expect_whole(heads, 1, 1, strict);
      expect_whole(heads, 31, 31, strict);
      expect_whole(heads, 700, 1, strict);
      expect_whole(heads, 700, 90, strict);
      expect_whole(heads, 600, 600, strict);
    }
    Heads capped;
    capped.softcap = 20;
    capped.dtype = KvDType::kF32;
    expect_whole(capped, 530, 17, strict);
  }
}

// Positions that lie behind all pages see each of their tokens; rows that see none say so.
TEST_P(AttentionStates, PagesWhollyBefore) {
  ThreadPool threads({.threads = 1, .spin = std::chrono::microseconds(0), .pin = false});
  const Context context{&threads, GetParam()};
  const Heads heads;
  const Tokens tokens(heads, 256, 9);
  Pool pool(heads, 12, 3);
  const auto slots = pool.take(256);
  const AttentionShape shape = heads.shape();
  const AttentionSpan all{0, 256, 0, slots};
  write_kv(context, pool.view(), shape, {&all, 1}, tokens.k_rows(0, 256), tokens.v_rows(0, 256));
  const std::int64_t width = state_width(shape.query_heads, shape.head_dim);
  for (const std::int32_t rows : {1, 40}) {
    Rows parts(3 * rows, width);
    const std::vector<std::int32_t> odd = {slots[1], slots[3], slots[5]};
    const std::vector<std::int32_t> even = {slots[0], slots[2], slots[4]};
    const AttentionSpan spans[] = {
        {0, rows, 96, odd, 0, 3, 0}, {0, rows, 96, even, 0, 3, rows}, {0, rows, 96, slots, 0, 0, 2 * rows}};
    attention_states(context, pool.view(), shape, spans, tokens.q_rows(0, rows), parts.view);
    const auto part = [&](std::int64_t i) {
      return MatrixView<float>(parts.view.row(i * rows), rows, width);
    };
    for (std::int32_t row = 0; row < rows; ++row) EXPECT_EQ(part(2).row(row)[shape.query_heads], 0.0F);
    fold_attention_states(context, shape, part(0), part(1));
    fold_attention_states(context, shape, part(0), part(2));
    Rows folded(rows, tokens.q_columns), whole(rows, tokens.q_columns);
    finish_attention_states(context, shape, part(0), folded.view);
    // One row at a time sees the first six pages from the last of their positions.
    for (std::int32_t row = 0; row < rows; ++row) {
      const AttentionSpan one{row, 1, 191, slots};
      attention(context, pool.view(), shape, {&one, 1}, tokens.q_rows(0, rows), whole.view);
    }
    for (std::size_t i = 0; i < folded.values.size(); ++i)
      ASSERT_NEAR(folded.values[i], whole.values[i], kTileTolerance) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, AttentionStates, testing::ValuesIn(isas()),
                         [](const auto& info) { return std::string(isa_name(info.param)); });

}  // namespace
}  // namespace shoal::kernels::test
