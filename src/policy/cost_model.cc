#include "policy/cost_model.h"

#include <algorithm>
#include <cmath>

namespace shoal::policy {
namespace {

// 0.98: an observation counts half after 34 steps, so a machine that changes its speed is followed in
// seconds.
constexpr double kForget = 0.98;
// The guess weighs like a fiftieth of one observation: it decides only what no observation has touched.
constexpr double kPriorWeight = 0.02;
constexpr double kHighQuantile = 0.99;
constexpr double kMarginStep = 0.03;

CostModel::Coefficients terms(const StepShape& shape) {
  return {1, shape.decode_rows, shape.prefill_rows, shape.decode_kv, shape.prefill_pairs};
}

}  // namespace

CostModel::CostModel(const Coefficients& guess) : guess_(guess), c_(guess) {
  // A term guessed as zero would have infinite prior weight below.
  for (std::size_t i = 0; i < kTerms; ++i)
    guess_[i] = c_[i] = std::isfinite(guess[i]) ? std::max(guess[i], 1e-12) : 1e-12;
}

CostModel::Coefficients CostModel::guess_for(std::uint64_t parameters) {
  const double row = 2.0 * static_cast<double>(parameters) / 10e9;
  // Attention of one position costs about a 20,000th of a row's matrix products at 1B shapes and below.
  return {1e-3, row, row, row / 20000, row / 20000};
}

double CostModel::predict(const StepShape& shape) const {
  const Coefficients x = terms(shape);
  double seconds = 0;
  for (std::size_t i = 0; i < kTerms; ++i) seconds += c_[i] * x[i];
  return seconds;
}

void CostModel::observe(const StepShape& shape, double seconds) {
  if (!(seconds > 0) || !std::isfinite(seconds)) return;
  if (observations_ > 0) {
    // Stochastic quantile tracking: up by 0.99 of a step when exceeded, down by 0.01 when not.
    const double ratio = seconds / std::max(predict(shape), 1e-9);
    margin_ += kMarginStep * (ratio > margin_ ? kHighQuantile : kHighQuantile - 1);
    margin_ = std::clamp(margin_, 1.05, 2.0);
  }
  // Errors are relative to the prediction, so that a machine that became slower counts as much as one that
  // became faster; to the observation where the two are far apart (the first guess, a stall).
  const double scale = std::clamp(predict(shape), seconds / 4, seconds * 4);
  Coefficients x = terms(shape);
  const double target = seconds / scale;
  double error = target;
  for (std::size_t i = 0; i < kTerms; ++i) {
    x[i] /= scale;
    error -= c_[i] * x[i];
  }
  // Huber weights from the second observation on; the first may well be far from the guess.
  const double weight = observations_ == 0 ? 1 : std::min(1.0, 0.5 / std::max(std::abs(error), 1e-9));
  for (std::size_t i = 0; i < kTerms; ++i) {
    b_[i] = kForget * b_[i] + weight * x[i] * target;
    for (std::size_t j = 0; j < kTerms; ++j) a_[i][j] = kForget * a_[i][j] + weight * x[i] * x[j];
  }
  ++observations_;
  solve();
}

// Minimises the fitted error plus kPriorWeight * (c / guess - 1)^2 over c >= 0, one coordinate at a time:
// each step is exact and keeps the sign, and 5 terms settle within some 40 sweeps (1,000 multiplications).
void CostModel::solve() {
  for (int sweep = 0; sweep < 40; ++sweep) {
    for (std::size_t i = 0; i < kTerms; ++i) {
      const double prior = kPriorWeight / (guess_[i] * guess_[i]);
      double top = b_[i] + prior * guess_[i];
      for (std::size_t j = 0; j < kTerms; ++j) {
        if (j != i) top -= a_[i][j] * c_[j];
      }
      c_[i] = std::max(0.0, top / (a_[i][i] + prior));
    }
  }
}

}  // namespace shoal::policy
