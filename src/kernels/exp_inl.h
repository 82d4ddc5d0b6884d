// Exponentials over a vector type: one polynomial for softmax, gated activations and log-sum-exp.
//
// Thread-safety: pure functions.
// Invariants: the order of operations is the same for every lane and every element count, so a value's bits
//   do not depend on where in a row it stands. exp2_of(0) == 1 exactly. NaN gives NaN.

#pragma once

namespace shoal::kernels {
namespace {  // each including file has its own copy, built with its own flags

// 2^r on [-0.5, 0.5], relative error 9.2e-9: interpolation of (2^r - 1) / r at the six Chebyshev nodes.
template <typename V>
inline typename V::F exp2_fraction(typename V::F r) {
  auto p = V::set(1.54531634e-4F);
  p = V::fma(p, r, V::set(1.33908633e-3F));
  p = V::fma(p, r, V::set(9.61808302e-3F));
  p = V::fma(p, r, V::set(5.55035695e-2F));
  p = V::fma(p, r, V::set(2.40226507e-1F));
  p = V::fma(p, r, V::set(6.93147182e-1F));
  return V::fma(p, r, V::set(1.0F));
}

// 2^x for x <= 0, within about 1 ulp (6e-8). Below 2^-126: zero.
template <typename V>
inline typename V::F exp2_of(typename V::F x) {
  x = V::max(V::set(V::kExponentMin), x);  // NaN stands second and so passes
  const auto n = V::round(x);
  return V::scale(exp2_fraction<V>(V::sub(x, n)), n);
}

// e^x. The multiple of ln 2 is taken off in two parts, the first with 12 low bits free, so that n * high is
// exact for |n| < 4096 and large |x| lose nothing.
template <typename V>
inline typename V::F exp_of(typename V::F x) {
  using F = typename V::F;
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLn2High = 0x1.62ep-1F;
  constexpr float kLn2Low = 0x1.0bfbe8p-15F;  // ln 2 - high = 3.194618e-5
  x = V::min(V::set(V::kExponentMax * 0.69314718F), V::max(V::set(V::kExponentMin * 0.69314718F), x));
  const F n = V::round(V::mul(x, V::set(kLog2E)));
  F r = V::fma(n, V::set(-kLn2High), x);
  r = V::fma(n, V::set(-kLn2Low), r);
  return V::scale(exp2_fraction<V>(V::mul(r, V::set(kLog2E))), n);
}

// tanh(x). Below 0.35 the odd Taylor series (next term 0.0036 x^12: 1.2e-8 relative), above it
// 1 - 2 / (e^2|x| + 1), whose cancellation there costs under 3 ulp.
template <typename V>
inline typename V::F tanh_of(typename V::F x) {
  using F = typename V::F;
  const F a = V::abs(x);
  const F big = V::sub(V::set(1), V::div(V::set(2), V::add(exp_of<V>(V::add(a, a)), V::set(1))));
  const F s = V::mul(x, x);
  F p = V::set(-1382.0F / 155925.0F);
  p = V::fma(p, s, V::set(62.0F / 2835.0F));
  p = V::fma(p, s, V::set(-17.0F / 315.0F));
  p = V::fma(p, s, V::set(2.0F / 15.0F));
  p = V::fma(p, s, V::set(-1.0F / 3.0F));
  const F small = V::fma(V::mul(x, s), p, x);
  return V::select(V::less(a, V::set(0.35F)), small, V::copy_sign(big, x));
}

}  // namespace
}  // namespace shoal::kernels
