// How long a step will take: seconds from what is in it, learned from the steps that ran.
//
// seconds = c0 + c1 decode rows + c2 prefill rows + c3 KV positions read by decode + c4 prefill attention
// pairs, all c >= 0. Fitted by least squares on relative errors with forgetting: each observation is divided
// by its own duration, so that steps of 2 ms and of 200 ms count alike and one stalled step pulls little.
//
// Thread-safety: none; the engine thread owns it. predict() is pure.
// Invariants:
//   1. Coefficients are finite and never negative; predictions grow with every part of a shape.
//   2. Before any observation the guess of the constructor holds, and afterwards for what was never seen.

#pragma once

#include <array>
#include <cstdint>

namespace shoal::policy {

struct StepShape {
  double decode_rows = 0;
  double prefill_rows = 0;
  double decode_kv = 0;      // positions that decode rows attend to, summed
  double prefill_pairs = 0;  // (query, key) pairs of prefill rows

  void add_decode(std::int64_t context) {
    decode_rows += 1;
    decode_kv += static_cast<double>(context);
  }
  // n tokens after `context` computed ones, of whose work `degree` coordinates do equal parts.
  void add_prefill(std::int64_t context, std::int64_t n, std::int32_t degree = 1) {
    const auto rows = static_cast<double>(n);
    prefill_rows += rows / degree;
    prefill_pairs += (rows * static_cast<double>(context) + rows * (rows + 1) / 2) / degree;
  }
};

class CostModel {
 public:
  static constexpr std::size_t kTerms = 5;
  using Coefficients = std::array<double, kTerms>;

  // guess: seconds per unit of each term, in the order above; should rather be too high than too low.
  explicit CostModel(const Coefficients& guess);

  // A guess from the number of weights alone: 2 operations for each weight and row at 10 GFLOP/s, a tenth of
  // what two cores do.
  static Coefficients guess_for(std::uint64_t parameters);

  // Expected seconds of a step.
  double predict(const StepShape& shape) const;
  // Seconds that 99 of 100 steps like this stay below, from how far steps were off lately.
  double predict_high(const StepShape& shape) const { return predict(shape) * margin_; }

  // Ignores durations that are not positive and finite.
  void observe(const StepShape& shape, double seconds);

  const Coefficients& coefficients() const { return c_; }
  double margin() const { return margin_; }
  std::uint64_t observations() const { return observations_; }

 private:
  void solve();

  Coefficients guess_;
  Coefficients c_;
  // Normal equations of the observations, older ones fading: a[i][j] = sum w x_i x_j, b[i] = sum w x_i y.
  std::array<Coefficients, kTerms> a_{};
  Coefficients b_{};
  double margin_ = 1.25;
  std::uint64_t observations_ = 0;
};

}  // namespace shoal::policy
