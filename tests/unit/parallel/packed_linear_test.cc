#include "parallel/packed_linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "core/thread_pool.h"
#include "parallel/weight_slice.h"
#include "tensor/half.h"

namespace shoal::parallel {
namespace {

constexpr std::int64_t kColumns = 48;

// Weights of one type, row-major, with values both types hold exactly.
struct Weights {
  DType type;
  std::int64_t rows;
  std::vector<float> values;
  std::vector<std::byte> bytes;

  Weights(DType t, std::int64_t r, int seed) : type(t), rows(r) {
    for (std::int64_t i = 0; i < rows * kColumns; ++i) {
      values.push_back(static_cast<float>((i * 7 + seed * 13) % 17 - 8) / 8);
    }
    bytes.resize(static_cast<std::size_t>(row_bytes(type, kColumns) * rows));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (type == DType::kF32) {
        std::memcpy(bytes.data() + 4 * i, &values[i], 4);
      } else {
        const Bf16 narrow = f32_to_bf16(values[i]);
        std::memcpy(bytes.data() + 2 * i, &narrow, 2);
      }
    }
  }

  formats::GgufTensor tensor() const {
    formats::GgufTensor t;
    t.name = "w";
    t.type = type;
    t.n_dims = 2;
    t.dims = {kColumns, rows, 1, 1};
    t.bytes = bytes;
    return t;
  }
};

class PackedLinearTest : public ::testing::Test {
 protected:
  PackedLinearTest() : pool_({.threads = 2, .spin = std::chrono::microseconds(0), .pin = false}) {
    context_.pool = &pool_;
    context_.isa = *kernels::chosen_isa();
    context_.activations = kernels::Activations::kF32;
  }

  ThreadPool pool_;
  kernels::Context context_;
  kernels::MatmulScratch scratch_;
};

double dot(const std::vector<float>& x, const Weights& w, std::int64_t row,
           IndexRange columns = {0, kColumns}) {
  double sum = 0;
  for (std::int64_t c = columns.begin; c < columns.end; ++c) {
    sum += static_cast<double>(x[static_cast<std::size_t>(c)]) *
           static_cast<double>(w.values[static_cast<std::size_t>(row * kColumns + c)]);
  }
  return sum;
}

std::vector<float> input() {
  std::vector<float> x;
  for (std::int64_t i = 0; i < kColumns; ++i) x.push_back(static_cast<float>(i % 5) - 2);
  return x;
}

// Whatever types the parts have and however they are fused, each part's outputs stand where part() says.
TEST_F(PackedLinearTest, PartsOfMixedTypesLieSideBySide) {
  const Weights q(DType::kF32, 24, 1);
  const Weights k(DType::kF32, 8, 2);
  const Weights v(DType::kBF16, 8, 3);
  const std::vector<float> x = input();
  const std::int64_t whole[] = {kColumns};
  const std::vector<std::vector<const Weights*>> orders{{&q, &k, &v}, {&q, &v, &k}, {&v, &q}, {&k}};
  for (const auto& order : orders) {
    std::vector<kernels::WeightSource> sources;
    std::int64_t width = 0;
    for (const Weights* w : order) {
      sources.push_back(row_slice(w->tensor(), {0, w->rows}));
      width += w->rows;
    }
    auto linear = PackedLinear::pack(sources, whole, context_);
    ASSERT_TRUE(linear.ok()) << linear.error().message();
    ASSERT_EQ(linear->width(), width);
    std::vector<float> y(static_cast<std::size_t>(width), NAN);
    const MatrixView<float> out(y.data(), 1, width);
    linear->apply(context_, scratch_, {x.data(), 1, kColumns}, out);
    for (std::size_t part = 0; part < order.size(); ++part) {
      const MatrixView<float> view = linear->part(out, part);
      ASSERT_EQ(view.columns, order[part]->rows);
      for (std::int64_t row = 0; row < view.columns; ++row) {
        EXPECT_NEAR(view.row(0)[row], dot(x, *order[part], row), 1e-4);
      }
    }
  }
}

// Slices of rows are the rows; slices of columns add up to the whole product.
TEST_F(PackedLinearTest, SlicesOfAMatrixAddUpToIt) {
  const Weights w(DType::kF32, 20, 5);
  const std::vector<float> x = input();

  auto some_rows =
      PackedLinear::pack(std::vector{row_slice(w.tensor(), {5, 11})}, std::vector{kColumns}, context_);
  ASSERT_TRUE(some_rows.ok());
  std::vector<float> y(6);
  some_rows->apply(context_, scratch_, {x.data(), 1, kColumns}, {y.data(), 1, 6});
  for (std::int64_t i = 0; i < 6; ++i) EXPECT_NEAR(y[static_cast<std::size_t>(i)], dot(x, w, 5 + i), 1e-4);

  std::vector<double> sum(20, 0);
  for (const IndexRange columns : {IndexRange{0, 32}, IndexRange{32, kColumns}}) {
    auto slice = column_slice(w.tensor(), columns);
    ASSERT_TRUE(slice.ok());
    auto part = PackedLinear::pack(std::span(&*slice, 1), std::vector{columns.size()}, context_);
    ASSERT_TRUE(part.ok());
    std::vector<float> partial(20);
    part->apply(context_, scratch_, {x.data() + columns.begin, 1, columns.size()}, {partial.data(), 1, 20});
    for (std::size_t i = 0; i < 20; ++i) sum[i] += static_cast<double>(partial[i]);
  }
  for (std::int64_t row = 0; row < 20; ++row)
    EXPECT_NEAR(sum[static_cast<std::size_t>(row)], dot(x, w, row), 1e-4);
}

TEST(WeightSlice, CutsWideBlocksInStepsOf32) {
  formats::GgufTensor tensor;
  tensor.type = DType::kQ4_K;
  tensor.dims = {512, 4, 1, 1};
  const auto refused = column_slice(tensor, {16, 512});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kUnsupported);
  const auto slice = column_slice(tensor, {384, 512});
  ASSERT_TRUE(slice.ok());
  EXPECT_EQ(slice->first_column, 128);
  EXPECT_EQ(slice->data - column_slice(tensor, {0, 512})->data, block_bytes(DType::kQ4_K));
  EXPECT_EQ(slice->bytes_per_row(), block_bytes(DType::kQ4_K));
}

}  // namespace
}  // namespace shoal::parallel
