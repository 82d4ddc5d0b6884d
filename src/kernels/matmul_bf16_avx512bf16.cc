// Activations rounded to bf16, for the tiles. (Products by VDPBF16PS have no place here: measured, it
// does 1.35 G operations of 32 products a second where VFMADD231PS does 5.6 G of 16.)

#include "kernels/matmul_kernels.h"

#if defined(__x86_64__)
#include "kernels/matmul_vec_avx512.h"
#endif

namespace shoal::kernels {

#if defined(__x86_64__)
namespace {

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

void round_rows_avx512bf16(const FormArgs& args, std::int64_t step_begin, std::int64_t step_end) {
  for_each_form_step(args, step_begin, step_end, [](const float* x, std::int64_t inputs, std::byte* out) {
    _mm512_storeu_si512(out, round_step(x, inputs));
  });
}
#else
void round_rows_avx512bf16(const FormArgs&, std::int64_t, std::int64_t) {}
#endif

}  // namespace shoal::kernels
