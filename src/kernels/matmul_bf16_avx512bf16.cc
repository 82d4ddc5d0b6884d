// bf16 weights times activations rounded to bf16, by VDPBF16PS: a dword of a packed row is the pair of inputs
// that one lane multiplies, so outputs stay in lanes as in the other products.

#include "kernels/matmul_kernels.h"

#if defined(__x86_64__)
#include "kernels/matmul_vec_avx512.h"
#endif

namespace shoal::kernels {

#if defined(__x86_64__)
namespace {

template <class V, DType type, int R, int C>
struct Bf16DotRows {
  static void run(const PanelArgs& a, std::int64_t block, std::int64_t row) {
    const std::int64_t row_bytes = a.steps * 64;
    const std::byte* x = a.x + row * row_bytes;
    Sums<V, R, C> sums;
    sums.start();
    walk<V, type, C>(
        a, block, row == 0,
        [&](const std::byte* const*, const std::byte* const* steps, std::int64_t step) {
          const std::byte* xs = x + step * 64;
          unroll<16>([&](auto pair) SHOAL_INLINE_LAMBDA {
            __m512bh w[C];
            unroll<C>([&](auto c) SHOAL_INLINE_LAMBDA {
              w[c] = reinterpret_cast<__m512bh>(V::load_i(steps[c] + 64 * pair));
            });
            unroll<R>([&](auto r) SHOAL_INLINE_LAMBDA {
              const auto both = reinterpret_cast<__m512bh>(
                  V::load_four(reinterpret_cast<const std::int8_t*>(xs + r * row_bytes + 4 * pair)));
              unroll<C>([&](auto c) SHOAL_INLINE_LAMBDA {
                sums.now[r][c] = _mm512_dpbf16_ps(sums.now[r][c], w[c], both);
              });
            });
          });
        },
        [&] { sums.fold(); });
    sums.write(a, row, block * kBlockColumns);
  }
};

// 32 floats, or the first n with zeros behind them, as 64 bytes of bf16.
SHOAL_INLINE __m512i round_step(const float* x, std::int64_t n) {
  __m512 low;
  __m512 high;
  if (n >= 32) {
    low = _mm512_loadu_ps(x);
    high = _mm512_loadu_ps(x + 16);
  } else {
    const std::uint32_t mask = (1U << n) - 1;
    low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), x);
    high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), x + (n > 16 ? 16 : 0));
  }
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

}  // namespace

PanelKernel bf16_kernel_avx512bf16(DType type) {
  return type == DType::kBF16 ? panel<Avx512, Bf16DotRows, DType::kBF16> : nullptr;
}

void round_rows_avx512bf16(const Bf16Rows& args, std::int64_t step_begin, std::int64_t step_end) {
  for (std::int64_t i = 0; i < args.segment_count; ++i) {
    const RowSegment& segment = args.segments[i];
    const std::int64_t steps = (segment.end - segment.begin + kStepInputs - 1) / kStepInputs;
    std::int64_t from = step_begin - segment.first_step;
    if (from < 0) from = 0;
    for (std::int64_t s = from; s < steps && segment.first_step + s < step_end; ++s) {
      const std::int64_t k = segment.begin + s * kStepInputs;
      std::byte* out = args.out + (segment.first_step + s) * args.step_bytes;
      for (std::int64_t r = 0; r < args.rows; ++r) {
        _mm512_storeu_si512(out + r * args.row_bytes,
                            round_step(args.x + r * args.x_stride + k, segment.end - k));
      }
    }
  }
}
#else
PanelKernel bf16_kernel_avx512bf16(DType) { return nullptr; }
void round_rows_avx512bf16(const Bf16Rows&, std::int64_t, std::int64_t) {}
#endif

}  // namespace shoal::kernels
