#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "kernels/matmul_reference.h"

namespace shoal::kernels {
namespace {

struct Setting {
  Isa isa;
  Activations activations;
  bool strict;
  std::string name() const {
    return std::string(isa_name(isa)) + (activations == Activations::kF32 ? " f32" : " auto") +
           (strict ? " strict" : "");
  }
};

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const Isa isa : tested_isas()) {
    for (const Activations a : {Activations::kF32, Activations::kAuto}) {
      for (const bool strict : {false, true}) all.push_back({isa, a, strict});
    }
  }
  return all;
}

// One rounding of 2^-24 per product and per sum in a chain of at most k, errors adding like a random walk but
// bounded by k: taken as 8 sqrt(k) of them.
double f32_bound(const Exact& e, std::int64_t k) {
  return 8 * std::sqrt(static_cast<double>(k)) * 0x1p-24 * e.magnitude + 1e-30;
}

// Rounded operands: each product is off by at most `relative` of the largest activation of its block of 32
// times its weight; independent errors over k inputs add as a root, and six deviations hold for every output
// of these tests.
double rounding_bound(const float* w, const float* x, std::int64_t k, double relative) {
  double variance = 0;
  for (std::int64_t begin = 0; begin < k; begin += 32) {
    const std::int64_t end = std::min(k, begin + 32);
    double largest = 0;
    for (std::int64_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(double{x[i]}));
    for (std::int64_t i = begin; i < end; ++i) variance += std::pow(relative * largest * w[i], 2);
  }
  return 6 * std::sqrt(variance) + 1e-30;
}

double bound(const Setting& s, const TestMatrix& m, const float* w, const float* x) {
  const double exact = f32_bound(exact_dot(w, x, m.k), m.k);
  if (s.activations == Activations::kF32) return exact;
  // 8-bit codes: half a step of 1/127, uniform, so a deviation of 1/254/sqrt(3). AMX prefill rounds weights
  // and activations to bf16 instead: two errors of up to 2^-9, less than that.
  if (is_quantised(m.type)) return exact + rounding_bound(w, x, m.k, 1.0 / 254 / std::sqrt(3.0));
  if (m.type == DType::kBF16) return exact + rounding_bound(w, x, m.k, 0x1p-9);
  return exact;
}

struct Product {
  std::vector<float> y;
  std::int64_t n;
  float at(std::int64_t r, std::int64_t c) const { return y[static_cast<std::size_t>(r * n + c)]; }
};

PackedMatrix packed(const TestMatrix& m, const Context& context, std::vector<std::int64_t> ends = {}) {
  if (ends.empty()) ends = {m.k};
  const WeightSource source = m.source();
  auto result = PackedMatrix::pack({&source, 1}, ends, context);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message());
  return std::move(*result);
}

Product multiply(const PackedMatrix& w, const Context& context, const std::vector<float>& x,
                 std::int64_t rows) {
  Product p{std::vector<float>(static_cast<std::size_t>(rows * w.rows()), 77.0F), w.rows()};
  MatmulScratch scratch;
  const MatmulTarget target{&w, {p.y.data(), rows, w.rows()}};
  matmul(context, scratch, {x.data(), rows, w.columns()}, {&target, 1});
  return p;
}

void expect_close(const Setting& s, const TestMatrix& m, const std::vector<float>& x, std::int64_t rows,
                  const Product& p) {
  int misses = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < m.n; ++c) {
      const float* w = m.values.data() + c * m.k;
      const float* xr = x.data() + r * m.k;
      const double error = std::abs(p.at(r, c) - exact_dot(w, xr, m.k).value);
      // Written so that NaN fails.
      if (!(error <= bound(s, m, w, xr)) && ++misses < 4) {
        ADD_FAILURE() << dtype_name(m.type) << " " << s.name() << " [" << rows << ", " << m.k << "] x " << m.n
                      << ": output " << r << ", " << c << " is " << p.at(r, c) << ", off by " << error
                      << " of " << bound(s, m, w, xr) << " allowed";
      }
    }
  }
}

class Matmul : public testing::TestWithParam<DType> {
 protected:
  DType type() const { return GetParam(); }
  // K that fits the type: whole blocks for quantised ones, anything otherwise.
  std::int64_t fitting_k(std::int64_t wish) const {
    const std::int64_t block = block_elements(type());
    return std::max(block, wish / block * block);
  }
  std::mt19937 random_{20240607};
  ThreadPool pool_{{.threads = 2, .pin = false}};
};

INSTANTIATE_TEST_SUITE_P(AllTypes, Matmul, testing::ValuesIn(kPackedTypes), [](const auto& info) {
  std::string name(dtype_name(info.param));
  return name;
});

TEST_P(Matmul, MatchesExactProductOverShapes) {
  struct Shape {
    std::int64_t rows, n, k;
  };
  const Shape shapes[] = {{1, 1, 1},    {1, 16, 512},   {2, 33, 300},   {3, 17, 65},
                          {5, 48, 256}, {7, 70, 31},    {13, 31, 777},  {33, 64, 512},
                          {70, 20, 96}, {130, 37, 288}, {40, 33, 2304}, {290, 35, 64}};
  for (const Shape& shape : shapes) {
    const TestMatrix m(type(), shape.n, fitting_k(shape.k), random_);
    const std::vector<float> x = random_activations(shape.rows * m.k, random_);
    for (const Setting& s : settings()) {
      const Context context{&pool_, s.isa, s.activations, s.strict};
      expect_close(s, m, x, shape.rows, multiply(packed(m, context), context, x, shape.rows));
    }
  }
}

TEST_P(Matmul, StrictRowsDoNotDependOnTheirCompany) {
  const TestMatrix m(type(), 83, fitting_k(512), random_);
  const std::vector<float> x = random_activations(70 * m.k, random_);
  const std::vector<std::int64_t> ends = {m.k / 2 / 32 * 32 > 0 ? m.k / 2 / 32 * 32 : m.k, m.k};
  for (const Setting& s : settings()) {
    if (!s.strict) continue;
    const Context alone{nullptr, s.isa, s.activations, true};
    const PackedMatrix w = packed(m, alone, ends.front() == m.k ? std::vector<std::int64_t>{} : ends);
    std::vector<float> one_by_one;
    for (std::int64_t r = 0; r < 70; ++r) {
      const std::vector<float> row(x.begin() + r * m.k, x.begin() + (r + 1) * m.k);
      const Product p = multiply(w, alone, row, 1);
      one_by_one.insert(one_by_one.end(), p.y.begin(), p.y.end());
    }
    for (int threads = 1; threads <= 4; ++threads) {
      ThreadPool pool({.threads = threads, .pin = false});
      const Context context{&pool, s.isa, s.activations, true};
      for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 70}) {
        // The rows asked for are the last ones, so that each takes several places.
        const std::vector<float> some(x.end() - rows * m.k, x.end());
        const Product p = multiply(w, context, some, rows);
        ASSERT_EQ(0,
                  std::memcmp(p.y.data(), one_by_one.data() + (70 - rows) * m.n, p.y.size() * sizeof(float)))
            << s.name() << " rows " << rows << " threads " << threads;
      }
    }
  }
}

TEST_P(Matmul, SegmentsAddInOrderFromZero) {
  const std::int64_t k = fitting_k(1024);
  const TestMatrix m(type(), 40, k, random_);
  const std::vector<float> x = random_activations(3 * k, random_);
  std::vector<std::int64_t> ends = {k / 4 / 32 * 32, k / 2 / 32 * 32, k / 2 / 32 * 32 + 96, k};
  if (!is_quantised(type())) ends[0] += 5;  // unquantised widths cut anywhere
  for (const Setting& s : settings()) {
    if (!s.strict) continue;
    const Context context{&pool_, s.isa, s.activations, true};
    const Product whole = multiply(packed(m, context, ends), context, x, 3);
    // Each segment by itself: the other activations are zero, so its partial sum is exact in the whole.
    std::vector<float> sum(whole.y.size(), 0.0F);
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < ends.size(); ++i) {
      std::vector<float> part(x.size(), 0.0F);
      for (std::int64_t r = 0; r < 3; ++r) {
        std::copy(x.begin() + r * k + begin, x.begin() + r * k + ends[i], part.begin() + r * k + begin);
      }
      const Product p = multiply(packed(m, context, ends), context, part, 3);
      for (std::size_t j = 0; j < sum.size(); ++j) sum[j] = i == 0 ? p.y[j] : sum[j] + p.y[j];
      begin = ends[i];
    }
    for (std::size_t j = 0; j < sum.size(); ++j) ASSERT_EQ(sum[j], whole.y[j]) << s.name() << " at " << j;
  }
}

// Rows so long that a chunk's activations do not fit L2: K goes in passes, sums wait in y between them.
TEST_P(Matmul, LongRowsGiveTheSameBitsInAChunkAndAlone) {
  const TestMatrix m(type(), 37, fitting_k(is_quantised(type()) ? 12288 : 6000), random_);
  constexpr std::int64_t kRows = 66;
  const std::vector<float> x = random_activations(kRows * m.k, random_);
  const std::int64_t third = m.k / 3 / 32 * 32;
  for (const std::vector<std::int64_t>& ends : {std::vector{m.k}, std::vector{third, 2 * third, m.k}}) {
    for (const Setting& s : settings()) {
      if (!s.strict || s.isa == Isa::kScalar) continue;
      const Context context{&pool_, s.isa, s.activations, true};
      const PackedMatrix w = packed(m, context, ends);
      const Product all = multiply(w, context, x, kRows);
      for (const std::int64_t row : {0, 7, 31, 32, 65}) {
        const std::vector<float> one(x.begin() + row * m.k, x.begin() + (row + 1) * m.k);
        const Product alone = multiply(w, context, one, 1);
        ASSERT_EQ(0, std::memcmp(alone.y.data(), all.y.data() + row * m.n, alone.y.size() * sizeof(float)))
            << s.name() << " row " << row << " of " << ends.size() << " segments";
      }
    }
  }
}

TEST_P(Matmul, VectorSetsAgreeBitForBit) {
  if (detected_isa() < Isa::kAvx512) GTEST_SKIP() << "needs AVX-512";
  const TestMatrix m(type(), 50, fitting_k(768), random_);
  const std::vector<float> x = random_activations(11 * m.k, random_);
  for (const Activations a : {Activations::kF32, Activations::kAuto}) {
    const Context narrow{&pool_, Isa::kAvx2, a, true};
    const Context wide{&pool_, Isa::kAvx512, a, true};
    EXPECT_EQ(multiply(packed(m, narrow), narrow, x, 11).y, multiply(packed(m, wide), wide, x, 11).y);
  }
}

// With unit rows as activations every output is one weight, times one, added to zeros.
TEST_P(Matmul, F32PathUsesTheExactWeights) {
  const std::int64_t k = fitting_k(64);
  const TestMatrix m(type(), 19, k, random_);
  std::vector<float> x(static_cast<std::size_t>(k * k), 0.0F);
  for (std::int64_t i = 0; i < k; ++i) x[static_cast<std::size_t>(i * k + i)] = 1.0F;
  for (const Isa isa : tested_isas()) {
    const Context context{&pool_, isa, Activations::kF32, false};
    const Product p = multiply(packed(m, context), context, x, k);
    for (std::int64_t i = 0; i < k; ++i) {
      for (std::int64_t c = 0; c < m.n; ++c) {
        ASSERT_EQ(m.values[static_cast<std::size_t>(c * k + i)], p.at(i, c)) << isa_name(isa);
      }
    }
  }
}

TEST_P(Matmul, InfinityAndNanStayInTheirRow) {
  const TestMatrix m(type(), 40, fitting_k(256), random_);
  for (const std::int64_t rows : {3, 40}) {
    std::vector<float> x = random_activations(rows * m.k, random_);
    std::vector<float> poisoned = x;
    poisoned[static_cast<std::size_t>(m.k + 3)] = std::numeric_limits<float>::infinity();
    poisoned[static_cast<std::size_t>(2 * m.k + m.k - 1)] = std::numeric_limits<float>::quiet_NaN();
    for (const Setting& s : settings()) {
      const Context context{&pool_, s.isa, s.activations, s.strict};
      const PackedMatrix w = packed(m, context);
      const Product clean = multiply(w, context, x, rows);
      const Product p = multiply(w, context, poisoned, rows);
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < m.n; ++c) {
          if (r == 1 || r == 2) {
            ASSERT_FALSE(std::isfinite(p.at(r, c))) << s.name() << " row " << r;
          } else {
            ASSERT_EQ(clean.at(r, c), p.at(r, c)) << s.name() << " row " << r;
          }
        }
      }
    }
  }
}

TEST_P(Matmul, DenormalAndHugeActivationsStayFinite) {
  const TestMatrix m(type(), 18, fitting_k(256), random_);
  std::vector<float> x = random_activations(4 * m.k, random_);
  for (std::int64_t i = 0; i < m.k; ++i) {
    x[static_cast<std::size_t>(i)] *= 1e-40F;
    x[static_cast<std::size_t>(m.k + i)] *= 1e-33F;
    x[static_cast<std::size_t>(2 * m.k + i)] *= 1e30F;
  }
  for (const Setting& s : settings()) {
    const Context context{&pool_, s.isa, s.activations, s.strict};
    expect_close(s, m, x, 4, multiply(packed(m, context), context, x, 4));
  }
}

TEST_P(Matmul, TakesViewsAtAnyAddressAndStride) {
  const TestMatrix m(type(), 21, fitting_k(256), random_);
  const std::vector<float> x = random_activations(5 * m.k, random_);
  for (const Setting& s : settings()) {
    const Context context{&pool_, s.isa, s.activations, s.strict};
    const PackedMatrix w = packed(m, context);
    const Product plain = multiply(w, context, x, 5);
    std::vector<float> wide(static_cast<std::size_t>(5 * (m.k + 3) + 1), -1.0F);
    for (std::int64_t r = 0; r < 5; ++r) {
      std::copy_n(x.begin() + r * m.k, m.k, wide.begin() + 1 + r * (m.k + 3));
    }
    std::vector<float> y(static_cast<std::size_t>(5 * (m.n + 2) + 1), 55.0F);
    MatmulScratch scratch;
    const MatmulTarget target{&w, {y.data() + 1, 5, m.n, m.n + 2}};
    matmul(context, scratch, {wide.data() + 1, 5, m.k, m.k + 3}, {&target, 1});
    EXPECT_EQ(55.0F, y[0]);
    for (std::int64_t r = 0; r < 5; ++r) {
      const float* row = y.data() + 1 + r * (m.n + 2);
      for (std::int64_t c = 0; c < m.n; ++c) ASSERT_EQ(plain.at(r, c), row[c]) << s.name();
      EXPECT_EQ(55.0F, row[m.n]);
      EXPECT_EQ(55.0F, row[m.n + 1]);
    }
  }
}

TEST_P(Matmul, StackedSourcesEqualTheirParts) {
  const std::int64_t k = fitting_k(256);
  const TestMatrix first(type(), 37, k, random_);
  const TestMatrix second(type(), 20, k, random_);
  const std::vector<float> x = random_activations(6 * k, random_);
  const Context context{&pool_, detected_isa(), Activations::kAuto, false};
  const WeightSource sources[] = {first.source(), second.source()};
  const std::int64_t end = k;
  auto both = PackedMatrix::pack(sources, {&end, 1}, context);
  ASSERT_TRUE(both.ok());
  const Product p = multiply(*both, context, x, 6);
  const Product a = multiply(packed(first, context), context, x, 6);
  const Product b = multiply(packed(second, context), context, x, 6);
  for (std::int64_t r = 0; r < 6; ++r) {
    for (std::int64_t c = 0; c < 57; ++c) ASSERT_EQ(c < 37 ? a.at(r, c) : b.at(r, c - 37), p.at(r, c));
  }
}

TEST(MatmulTargets, ShareTheRoundedActivations) {
  std::mt19937 random(5);
  ThreadPool pool({.threads = 2, .pin = false});
  const Context context{&pool, detected_isa(), Activations::kAuto, false};
  std::vector<PackedMatrix> weights;
  for (const DType type : kPackedTypes) weights.push_back(packed(TestMatrix(type, 24, 256, random), context));
  for (const std::int64_t rows : {2, 48}) {
    const std::vector<float> x = random_activations(rows * 256, random);
    std::vector<std::vector<float>> ys(weights.size(),
                                       std::vector<float>(static_cast<std::size_t>(24 * rows)));
    std::vector<MatmulTarget> targets;
    for (std::size_t i = 0; i < weights.size(); ++i)
      targets.push_back({&weights[i], {ys[i].data(), rows, 24}});
    MatmulScratch scratch;
    matmul(context, scratch, {x.data(), rows, 256}, targets);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      EXPECT_EQ(multiply(weights[i], context, x, rows).y, ys[i]) << dtype_name(weights[i].type());
    }
  }
}

TEST(MatmulTargets, ZeroRowsDoNothing) {
  std::mt19937 random(6);
  const Context context{nullptr, detected_isa(), Activations::kAuto, false};
  const PackedMatrix w = packed(TestMatrix(DType::kQ8_0, 8, 32, random), context);
  EXPECT_TRUE(multiply(w, context, {}, 0).y.empty());
}

TEST(Pack, RefusesWhatItCannotHold) {
  std::mt19937 random(7);
  const Context context{nullptr, Isa::kScalar, Activations::kAuto, false};
  const TestMatrix m(DType::kQ8_0, 4, 64, random);
  const auto code = [&](std::vector<WeightSource> sources, std::vector<std::int64_t> ends) {
    auto result = PackedMatrix::pack(sources, ends, context);
    return result.ok() ? ErrorCode::kOk : result.error().code();
  };
  WeightSource source = m.source();
  EXPECT_EQ(ErrorCode::kOk, code({source}, {64}));
  EXPECT_EQ(ErrorCode::kInvalidArgument, code({}, {64}));
  EXPECT_EQ(ErrorCode::kInvalidArgument, code({source}, {}));
  EXPECT_EQ(ErrorCode::kInvalidArgument, code({source}, {32}));
  EXPECT_EQ(ErrorCode::kInvalidArgument, code({source}, {16, 64}));
  EXPECT_EQ(ErrorCode::kInvalidArgument, code({source}, {32, 32, 64}));
  EXPECT_EQ(ErrorCode::kInvalidArgument, code({source}, {96}));
  WeightSource short_stride = source;
  short_stride.stride = 67;
  EXPECT_EQ(ErrorCode::kInvalidArgument, code({short_stride}, {64}));
  WeightSource ragged = source;
  ragged.columns = 60;
  EXPECT_EQ(ErrorCode::kInvalidArgument, code({ragged}, {60}));
  WeightSource other = source;
  other.type = DType::kQ5_0;
  EXPECT_EQ(ErrorCode::kInvalidArgument, code({source, other}, {64}));
  WeightSource unknown = source;
  unknown.type = DType::kI32;
  EXPECT_EQ(ErrorCode::kUnsupported, code({unknown}, {64}));
}

}  // namespace
}  // namespace shoal::kernels
