#include "kernels/feed_forward.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "kernels/matmul_reference.h"

namespace shoal::kernels {
namespace {

PackedMatrix packed(std::vector<WeightSource> stacked, std::vector<std::int64_t> ends,
                    const Context& context) {
  auto result = PackedMatrix::pack(stacked, ends, context);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message());
  return std::move(*result);
}

// Weights of one block: gate and up [width, hidden], down [hidden, width].
struct Weights {
  TestMatrix gate;
  TestMatrix up;
  TestMatrix down;
  Weights(DType type, DType down_type, std::int64_t hidden, std::int64_t width, std::mt19937& random)
      : gate(type, width, hidden, random),
        up(type, width, hidden, random),
        down(down_type, hidden, width, random) {}
};

std::vector<float> step_by_step(const Context& context, const FeedForward& block, const std::vector<float>& x,
                                std::int64_t rows) {
  const std::int64_t hidden = block.gate_up.columns();
  const std::int64_t width = block.down.columns();
  std::vector<float> gate_up(static_cast<std::size_t>(rows * 2 * width));
  std::vector<float> y(static_cast<std::size_t>(rows * block.down.rows()), 77.0F);
  MatmulScratch scratch;
  const MatmulTarget first{&block.gate_up, {gate_up.data(), rows, 2 * width}};
  matmul(context, scratch, {x.data(), rows, hidden}, {&first, 1});
  const MatrixView<float> gate(gate_up.data(), rows, width, 2 * width);
  const MatrixView<float> up(gate_up.data() + width, rows, width, 2 * width);
  gated_activation(context, block.activation, gate, up, gate);
  const MatmulTarget second{&block.down, {y.data(), rows, block.down.rows()}};
  matmul(context, scratch, gate, {&second, 1});
  return y;
}

std::vector<float> at_once(const Context& context, const FeedForward& block, const std::vector<float>& x,
                           std::int64_t rows) {
  std::vector<float> y(static_cast<std::size_t>(rows * block.down.rows()), 55.0F);
  MatmulScratch scratch;
  feed_forward(context, scratch, block, {x.data(), rows, block.gate_up.columns()},
               {y.data(), rows, block.down.rows()});
  return y;
}

// Bits, so that NaN equals NaN.
void expect_same_bits(const std::vector<float>& expected, const std::vector<float>& got,
                      const std::string& where) {
  ASSERT_EQ(expected.size(), got.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(got[i])) continue;
    ASSERT_EQ(expected[i], got[i]) << where << " at " << i;
  }
}

class FeedForwardTypes : public testing::TestWithParam<DType> {
 protected:
  std::mt19937 random_{77};
  ThreadPool pool_{{.threads = 2, .pin = false}};
};

INSTANTIATE_TEST_SUITE_P(AllTypes, FeedForwardTypes, testing::ValuesIn(kPackedTypes),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

TEST_P(FeedForwardTypes, HasTheBitsOfItsSteps) {
  struct Shape {
    std::int64_t rows, hidden, width;
  };
  // Widths of whole and of halved pieces of columns; rows past one chunk; odd numbers of them.
  for (const Shape& shape : {Shape{16, 256, 256}, Shape{37, 512, 768}, Shape{277, 256, 512}}) {
    const Weights w(GetParam(), GetParam(), shape.hidden, shape.width, random_);
    const std::vector<float> x = random_activations(shape.rows * shape.hidden, random_);
    for (const Isa isa : tested_isas()) {
      for (const bool strict : {false, true}) {
        const Context context{&pool_, isa, Activations::kAuto, strict};
        const PackedMatrix gate_up = packed({w.gate.source(), w.up.source()}, {shape.hidden}, context);
        const PackedMatrix down = packed({w.down.source()}, {shape.width / 2, shape.width}, context);
        const auto activation = strict ? GatedActivation::kGeluTanh : GatedActivation::kSilu;
        const FeedForward block{gate_up, down, activation};
        ASSERT_TRUE(takes_feed_forward(block, shape.rows));
        expect_same_bits(step_by_step(context, block, x, shape.rows), at_once(context, block, x, shape.rows),
                         std::string(isa_name(isa)) + (strict ? " strict, rows " : ", rows ") +
                             std::to_string(shape.rows));
      }
    }
  }
}

TEST(FeedForward, TakesAWidthThatIsNoMultipleOfAPiece) {
  std::mt19937 random(3);
  ThreadPool pool({.threads = 2, .pin = false});
  const Weights w(DType::kQ8_0, DType::kQ4_0, 64, 96, random);
  const std::vector<float> x = random_activations(20 * 64, random);
  for (const Isa isa : tested_isas()) {
    const Context context{&pool, isa, Activations::kAuto, false};
    const PackedMatrix gate_up = packed({w.gate.source(), w.up.source()}, {64}, context);
    const PackedMatrix down = packed({w.down.source()}, {32, 96}, context);
    const FeedForward block{gate_up, down};
    ASSERT_TRUE(takes_feed_forward(block, 20));
    expect_same_bits(step_by_step(context, block, x, 20), at_once(context, block, x, 20),
                     std::string(isa_name(isa)));
  }
}

TEST(FeedForward, InfinityAndNanStayInTheirRow) {
  std::mt19937 random(4);
  ThreadPool pool({.threads = 2, .pin = false});
  const Weights w(DType::kQ4_K, DType::kQ6_K, 256, 256, random);
  const std::vector<float> x = random_activations(24 * 256, random);
  std::vector<float> poisoned = x;
  poisoned[256 + 3] = std::numeric_limits<float>::infinity();
  poisoned[2 * 256 + 255] = std::numeric_limits<float>::quiet_NaN();
  for (const Isa isa : tested_isas()) {
    const Context context{&pool, isa, Activations::kAuto, false};
    const PackedMatrix gate_up = packed({w.gate.source(), w.up.source()}, {256}, context);
    const PackedMatrix down = packed({w.down.source()}, {256}, context);
    const FeedForward block{gate_up, down};
    const std::vector<float> clean = at_once(context, block, x, 24);
    const std::vector<float> y = at_once(context, block, poisoned, 24);
    for (std::size_t i = 0; i < y.size(); ++i) {
      if (i / 256 == 1 || i / 256 == 2) {
        ASSERT_FALSE(std::isfinite(y[i])) << isa_name(isa) << " at " << i;
      } else {
        ASSERT_EQ(clean[i], y[i]) << isa_name(isa) << " at " << i;
      }
    }
  }
}

TEST(FeedForward, LeavesFewRowsAndRaggedWidthsToItsSteps) {
  std::mt19937 random(5);
  const Context context{nullptr, Isa::kScalar, Activations::kAuto, false};
  const Weights whole(DType::kF32, DType::kF32, 32, 64, random);
  const Weights ragged(DType::kF32, DType::kF32, 32, 48, random);
  const PackedMatrix gate_up = packed({whole.gate.source(), whole.up.source()}, {32}, context);
  const PackedMatrix down = packed({whole.down.source()}, {64}, context);
  const PackedMatrix cut = packed({whole.down.source()}, {40, 64}, context);
  const PackedMatrix ragged_gate_up = packed({ragged.gate.source(), ragged.up.source()}, {32}, context);
  const PackedMatrix ragged_down = packed({ragged.down.source()}, {48}, context);
  EXPECT_TRUE(takes_feed_forward({gate_up, down}, 16));
  EXPECT_FALSE(takes_feed_forward({gate_up, down}, 1));
  EXPECT_FALSE(takes_feed_forward({gate_up, cut}, 16));
  EXPECT_FALSE(takes_feed_forward({ragged_gate_up, ragged_down}, 16));
}

}  // namespace
}  // namespace shoal::kernels
