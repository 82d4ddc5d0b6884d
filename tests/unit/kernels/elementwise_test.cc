#include "kernels/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "kernels/attention_rig.h"

namespace shoal::kernels::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

Context on(Isa isa, ThreadPool* pool = nullptr) {
  Context context;
  context.isa = isa;
  context.pool = pool;
  return context;
}

// Rows with a gap of 3 sentinels after each.
struct Rows {
  Rows(std::int64_t r, std::int64_t c, std::uint32_t seed, float deviation = 1)
      : data(static_cast<std::size_t>(r * (c + 3)), kGap), rows(r), columns(c) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, deviation);
    for (std::int64_t i = 0; i < r; ++i) {
      for (std::int64_t j = 0; j < c; ++j) at(i, j) = normal(random);
    }
  }
  float& at(std::int64_t r, std::int64_t c) { return data[static_cast<std::size_t>(r * (columns + 3) + c)]; }
  MatrixView<float> view() { return {data.data(), rows, columns, columns + 3}; }
  MatrixView<const float> read() { return view(); }
  bool gaps_kept() {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = columns; c < columns + 3; ++c) {
        if (at(r, c) != kGap) return false;
      }
    }
    return true;
  }

  static constexpr float kGap = 12345;
  std::vector<float> data;
  std::int64_t rows;
  std::int64_t columns;
};

std::vector<float> weights(std::int64_t n) {
  std::vector<float> w(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = 0.5F + static_cast<float>(i % 7) / 8;
  return w;
}

// f32 sums of squares over n terms: relative error of a few 1e-7.
void expect_near(float got, double wanted, double relative = 2e-6) {
  const double error = std::abs(static_cast<double>(got) - wanted);
  EXPECT_TRUE(error < relative * std::abs(wanted) + 1e-7) << got << ", reference " << wanted;
}

const std::vector<std::int64_t> kColumns = {1, 2, 7, 8, 15, 16, 17, 31, 63, 64, 65, 100, 576, 1001};

double rms_of(Rows& x, std::int64_t row, double eps) {
  double sum = 0;
  for (std::int64_t c = 0; c < x.columns; ++c) sum += static_cast<double>(x.at(row, c)) * x.at(row, c);
  return std::sqrt(sum / static_cast<double>(x.columns) + eps);
}

TEST(RmsNorm, MatchesItsDefinitionForAnyWidth) {
  for (const Isa isa : isas()) {
    for (const std::int64_t n : kColumns) {
      Rows x(3, n, 1);
      Rows y(3, n, 2);
      const auto w = weights(n);
      rms_norm(on(isa), x.read(), w, 1e-5F, y.view());
      for (std::int64_t r = 0; r < 3; ++r) {
        const double rms = rms_of(x, r, 1e-5);
        for (std::int64_t c = 0; c < n; ++c) {
          expect_near(y.at(r, c), x.at(r, c) / rms * static_cast<double>(w[static_cast<std::size_t>(c)]));
        }
      }
      EXPECT_TRUE(y.gaps_kept());
      rms_norm(on(isa), x.read(), w, 1e-5F, x.view());  // in place
      EXPECT_TRUE(same_bits(x.data, y.data)) << isa_name(isa) << " " << n;
    }
  }
}

TEST(RmsNorm, AddingFirstGivesTheSameBitsAsAddThenNorm) {
  for (const Isa isa : isas()) {
    for (const std::int64_t n : kColumns) {
      Rows x(2, n, 3);
      Rows delta(2, n, 4);
      Rows joint_x = x;
      Rows y(2, n, 5);
      Rows joint_y(2, n, 6);
      const auto w = weights(n);
      add_rms_norm(on(isa), joint_x.view(), delta.read(), w, 1e-6F, joint_y.view());
      add(on(isa), x.view(), delta.read());
      rms_norm(on(isa), x.read(), w, 1e-6F, y.view());
      EXPECT_TRUE(same_bits(joint_x.data, x.data));
      EXPECT_TRUE(same_bits(joint_y.data, y.data));
    }
  }
}

TEST(RmsNorm, ZeroRowGivesZerosAndNanStaysInItsRow) {
  for (const Isa isa : isas()) {
    Rows x(3, 33, 7);
    for (std::int64_t c = 0; c < 33; ++c) x.at(0, c) = 0;
    x.at(1, 20) = kNan;
    Rows y(3, 33, 8);
    rms_norm(on(isa), x.read(), weights(33), 1e-6F, y.view());
    for (std::int64_t c = 0; c < 33; ++c) {
      EXPECT_EQ(y.at(0, c), 0.0F);
      EXPECT_TRUE(std::isnan(y.at(1, c)));
      EXPECT_TRUE(std::isfinite(y.at(2, c)));
    }
  }
}

TEST(RmsNorm, HeadsAreNormalisedOnTheirOwn) {
  for (const Isa isa : isas()) {
    for (const std::int32_t d : {8, 20, 64, 128}) {
      Rows x(2, 3 * d, 9);
      Rows wanted(6, d, 0);
      for (std::int64_t h = 0; h < 6; ++h) {
        for (std::int32_t c = 0; c < d; ++c) wanted.at(h, c) = x.at(h / 3, h % 3 * d + c);
      }
      const auto w = weights(d);
      rms_norm(on(isa), wanted.read(), w, 1e-6F, wanted.view());
      head_rms_norm(on(isa), x.view(), d, w, 1e-6F);
      for (std::int64_t h = 0; h < 6; ++h) {
        for (std::int32_t c = 0; c < d; ++c) EXPECT_EQ(x.at(h / 3, h % 3 * d + c), wanted.at(h, c));
      }
      EXPECT_TRUE(x.gaps_kept());
    }
  }
}

TEST(Add, SumsAndBiases) {
  for (const Isa isa : isas()) {
    for (const std::int64_t n : kColumns) {
      Rows x(3, n, 10);
      Rows delta(3, n, 11);
      Rows biased = x;
      const Rows before = x;
      const auto b = weights(n);
      add(on(isa), x.view(), delta.read());
      add_bias(on(isa), biased.view(), b);
      for (std::int64_t r = 0; r < 3; ++r) {
        for (std::int64_t c = 0; c < n; ++c) {
          const float old = before.data[static_cast<std::size_t>(r * (n + 3) + c)];
          EXPECT_EQ(x.at(r, c), old + delta.at(r, c));
          EXPECT_EQ(biased.at(r, c), old + b[static_cast<std::size_t>(c)]);
        }
      }
      EXPECT_TRUE(x.gaps_kept() && biased.gaps_kept());
    }
  }
}

Rope plain_rope(std::int32_t dims, bool adjacent) {
  Rope rope;
  rope.adjacent_pairs = adjacent;
  for (std::int32_t i = 0; i < dims / 2; ++i) {
    rope.inverse_frequency.push_back(static_cast<float>(std::pow(10000.0, -2.0 * i / dims)));
  }
  return rope;
}

TEST(ApplyRope, MatchesItsDefinitionUpToAMillionPositions) {
  const std::vector<std::int32_t> positions = {0, 1, 31, 4096, 131071, 999999};
  for (const Isa isa : isas()) {
    for (const bool adjacent : {true, false}) {
      for (const auto& [head_dim, rotary] :
           std::vector<std::pair<int, int>>{{64, 64}, {80, 32}, {42, 42}, {128, 128}, {8, 2}, {96, 72}}) {
        Rope rope = plain_rope(rotary, adjacent);
        rope.magnitude = 1.25F;
        Rows x(6, 3 * head_dim, 12);
        Rows before = x;
        apply_rope(on(isa), rope, x.view(), head_dim, positions);
        for (std::int64_t r = 0; r < 6; ++r) {
          for (std::int64_t h = 0; h < 3; ++h) {
            for (int i = 0; i < rotary / 2; ++i) {
              const std::int64_t a = h * head_dim + (adjacent ? 2 * i : i);
              const std::int64_t b = adjacent ? a + 1 : a + rotary / 2;
              const double angle = static_cast<double>(positions[static_cast<std::size_t>(r)]) *
                                   static_cast<double>(rope.inverse_frequency[static_cast<std::size_t>(i)]);
              const double c = std::cos(angle) * 1.25;
              const double s = std::sin(angle) * 1.25;
              // Two products and a sum in f32 of values of order 1.
              EXPECT_TRUE(std::abs(x.at(r, a) - (before.at(r, a) * c - before.at(r, b) * s)) < 2e-6);
              EXPECT_TRUE(std::abs(x.at(r, b) - (before.at(r, a) * s + before.at(r, b) * c)) < 2e-6);
            }
            for (std::int64_t c = h * head_dim + rotary; c < (h + 1) * head_dim; ++c) {
              EXPECT_EQ(x.at(r, c), before.at(r, c));
            }
          }
        }
        EXPECT_TRUE(x.gaps_kept());
      }
    }
  }
}

TEST(ApplyRope, RepeatedCallsWithOtherPositionsOrRopesAreNotMixedUp) {
  const Rope one = plain_rope(16, true);
  Rope two = one;
  two.inverse_frequency[3] *= 2;
  Rope three = one;
  three.magnitude = 2;
  const std::vector<std::int32_t> near = {1, 2};
  const std::vector<std::int32_t> far = {1, 3};
  const Rows x(2, 16, 13);
  for (const Isa isa : isas()) {
    auto turned = [&](const Rope& rope, const std::vector<std::int32_t>& positions) {
      Rows y = x;
      apply_rope(on(isa), rope, y.view(), 16, positions);
      return y.data;
    };
    const auto first = turned(one, near);
    EXPECT_FALSE(same_bits(turned(two, near), first));
    EXPECT_FALSE(same_bits(turned(three, near), first));
    EXPECT_FALSE(same_bits(turned(one, far), first));
    EXPECT_TRUE(same_bits(turned(one, near), first));
    EXPECT_TRUE(same_bits(turned(one, near), first));
  }
}

TEST(GatedActivation, MatchesItsDefinitionOverTheWholeRange) {
  for (const Isa isa : isas()) {
    Rows gate(4, 801, 14);
    Rows up(4, 801, 15);
    for (std::int64_t r = 0; r < 4; ++r) {
      for (std::int64_t c = 0; c < 801; ++c) gate.at(r, c) = (static_cast<float>(c) - 400) / 25;
    }
    Rows silu(4, 801, 0);
    Rows gelu(4, 801, 0);
    gated_activation(on(isa), GatedActivation::kSilu, gate.read(), up.read(), silu.view());
    gated_activation(on(isa), GatedActivation::kGeluTanh, gate.read(), up.read(), gelu.view());
    for (std::int64_t r = 0; r < 4; ++r) {
      for (std::int64_t c = 0; c < 801; ++c) {
        const double g = gate.at(r, c);
        const double u = up.at(r, c);
        expect_near(silu.at(r, c), g / (1 + std::exp(-g)) * u);
        // The f32 argument of the exponential reaches -280 where the value vanishes; relative error follows
        // it.
        const double inner = std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
        expect_near(gelu.at(r, c), g / (1 + std::exp(-2 * inner)) * u, 2e-5);
      }
    }
    EXPECT_TRUE(silu.gaps_kept() && gelu.gaps_kept());
    gated_activation(on(isa), GatedActivation::kSilu, gate.read(), up.read(), gate.view());
    EXPECT_TRUE(same_bits(gate.data, silu.data));
  }
}

TEST(GatedActivation, ExtremesAreWhatTheLimitSays) {
  for (const Isa isa : isas()) {
    Rows gate(1, 6, 0);
    Rows up(1, 6, 0);
    const float values[] = {-1e30F, -1000, 1000, kNan, -0.0F, kInf};
    for (std::int64_t c = 0; c < 6; ++c) {
      gate.at(0, c) = values[c];
      up.at(0, c) = 1;
    }
    for (const auto kind : {GatedActivation::kSilu, GatedActivation::kGeluTanh}) {
      Rows y(1, 6, 0);
      gated_activation(on(isa), kind, gate.read(), up.read(), y.view());
      EXPECT_EQ(y.at(0, 0), 0.0F);
      EXPECT_EQ(y.at(0, 1), 0.0F);
      EXPECT_EQ(y.at(0, 2), 1000.0F);
      EXPECT_TRUE(std::isnan(y.at(0, 3)));
      EXPECT_EQ(y.at(0, 4), 0.0F);
      EXPECT_EQ(y.at(0, 5), kInf);
    }
  }
}

TEST(Elementwise, BitsDoNotDependOnThreadsOrTheNumberOfRows) {
  ThreadPool threads({.threads = 3, .pin = false});
  std::vector<std::int32_t> positions(300);
  std::iota(positions.begin(), positions.end(), 50);
  const auto w = weights(320);
  for (const Isa isa : isas()) {
    auto all = [&](Rows x, const Context& context, std::int64_t first, std::int64_t n) {
      MatrixView<float> v{x.data.data() + first * 323, n, 320, 323};
      Rows y(n, 320, 0);
      apply_rope(context, plain_rope(64, true), v, 64,
                 std::span(positions).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(n)));
      head_rms_norm(context, v, 64, std::span(w).first(64), 1e-6F);
      add_rms_norm(context, v, v, w, 1e-6F, y.view());
      gated_activation(context, GatedActivation::kSilu, y.read(), v, y.view());
      return y.data;
    };
    const Rows x(300, 320, 16);
    const auto whole = all(x, on(isa), 0, 300);
    EXPECT_TRUE(same_bits(all(x, on(isa, &threads), 0, 300), whole));
    EXPECT_TRUE(same_bits(all(x, on(isa), 170, 1), std::span(whole).subspan(170 * 323, 323)));
  }
}

TEST(Elementwise, NoRowsDoNothing) {
  for (const Isa isa : isas()) {
    rms_norm(on(isa), {}, {}, 1e-6F, {});
    add_rms_norm(on(isa), {}, {}, {}, 1e-6F, {});
    add(on(isa), {}, {});
    add_bias(on(isa), {}, {});
    head_rms_norm(on(isa), {}, 64, {}, 1e-6F);
    apply_rope(on(isa), plain_rope(64, true), {}, 64, {});
    gated_activation(on(isa), GatedActivation::kSilu, {}, {}, {});
  }
}

}  // namespace
}  // namespace shoal::kernels::test
