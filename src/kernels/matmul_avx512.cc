#include "kernels/matmul_kernels.h"

#if defined(__x86_64__)
#include "kernels/matmul_block_inl.h"
#include "kernels/matmul_vec_avx512.h"
#endif

namespace shoal::kernels {

#if defined(__x86_64__)
namespace {

struct Avx512Block : Avx512 {
  static constexpr int kDirectRows = 4;
  // 8 rows x 2 blocks: 16 of 32 registers for integer products (or f32 sums).
  static constexpr int kBlockRows = 8;

  template <DType>
  struct Codes {
    static constexpr int kPlanes = 1;
    static SHOAL_INLINE void put(I codes, std::byte* out) { _mm512_store_si512(out, codes); }
  };

  // The sums wait in memory, L1: 16 loads and stores a step hide behind 176 products, while registers for
  // them would leave room for 4 rows only, with twice the loads of weights for each product.
  template <Terms terms, class, int R>
  static void multiply(const std::byte* w, std::int64_t steps, const Q8Block* x, float* sums, Ahead& ahead) {
    constexpr int halves = terms == Terms::kHalves ? 2 : 1;
    constexpr int groups = 8 / halves;
    for (std::int64_t s = 0; s < steps; ++s, w += int8_step_bytes(1), x += kGroupRows) {
      ahead.step();
      ahead.x_step<6>(kGroupRows * sizeof(Q8Block));
      const auto* scales = reinterpret_cast<const float*>(w + 1024);
      unroll<halves>([&](auto half) SHOAL_INLINE_LAMBDA {
        __m512i products[R][2];
        unroll<R>([&](auto r) SHOAL_INLINE_LAMBDA {
          if constexpr (terms == Terms::kMinimum) {
            products[r][0] = _mm512_setzero_si512();
          } else if constexpr (terms == Terms::kOffset) {
            products[r][0] = set1(x[r].start);
          } else {
            products[r][0] = half == 0 ? set1(x[r].start_low) : set1(x[r].start - x[r].start_low);
          }
          products[r][1] = products[r][0];
        });
        unroll<groups>([&](auto i) SHOAL_INLINE_LAMBDA {
          constexpr int g = half * groups + i;
          const __m512i first = _mm512_load_si512(w + 64 * g);
          const __m512i second = _mm512_load_si512(w + 512 + 64 * g);
          unroll<R>([&](auto r) SHOAL_INLINE_LAMBDA {
            const __m512i four = load_four(x[r].q + 4 * g);
            products[r][0] = _mm512_dpbusd_epi32(products[r][0], first, four);
            products[r][1] = _mm512_dpbusd_epi32(products[r][1], second, four);
          });
        });
        unroll<R>([&](auto r) SHOAL_INLINE_LAMBDA {
          unroll<2>([&](auto c) SHOAL_INLINE_LAMBDA {
            __m512 t = _mm512_mul_ps(to_f(products[r][c]), load_f(scales + 32 * half + 16 * c));
            if constexpr (terms == Terms::kMinimum) t = fma(load_f(scales + 32 + 16 * c), &x[r].sum, t);
            float* sum = sums + r * kPairColumns + 16 * c;
            store(sum, fma(t, &x[r].scale, load_f(sum)));
          });
        });
      });
    }
  }
};

SHOAL_INLINE void quantise_block(const float* x, Q8Block& out) {
  const __m512 a = _mm512_loadu_ps(x);
  const __m512 b = _mm512_loadu_ps(x + 16);
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  const auto largest = static_cast<std::uint32_t>(
      _mm512_reduce_max_epi32(_mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(a), magnitude),
                                               _mm512_and_si512(_mm512_castps_si512(b), magnitude))));
  float amax;
  __builtin_memcpy(&amax, &largest, sizeof(amax));
  __m256i* q = reinterpret_cast<__m256i*>(out.q);
  if (largest >= 0x7f800000U || amax < kSmallestQuantised) {
    _mm256_storeu_si256(q, _mm256_setzero_si256());
    out.scale = largest >= 0x7f800000U ? __builtin_nanf("") : 0.0F;
    out.sum = 0;
    out.start = 0;
    out.start_low = 0;
    return;
  }
  const __m512 inverse = _mm512_set1_ps(127.0F / amax);
  const __m512i qa = _mm512_cvtps_epi32(_mm512_mul_ps(a, inverse));
  const __m512i qb = _mm512_cvtps_epi32(_mm512_mul_ps(b, inverse));
  const __m256i bytes =
      _mm256_inserti128_si256(_mm256_castsi128_si256(_mm512_cvtepi32_epi8(qa)), _mm512_cvtepi32_epi8(qb), 1);
  _mm256_storeu_si256(q, bytes);
  const std::int32_t low = _mm512_reduce_add_epi32(qa);
  const std::int32_t all = low + _mm512_reduce_add_epi32(qb);
  out.scale = amax / 127.0F;
  out.sum = static_cast<float>(all);
  out.start = -128 * all;
  out.start_low = -128 * low;
}

}  // namespace

PanelKernel f32_kernel_avx512(DType type) { return f32_kernel<Avx512Block>(type); }
PanelKernel int8_kernel_avx512(DType type) { return int8_kernel<Avx512Block>(type); }

void quantise_rows_avx512(const FormArgs& args, std::int64_t step_begin, std::int64_t step_end) {
  for_each_form_step(args, step_begin, step_end, [](const float* x, std::int64_t, std::byte* out) {
    quantise_block(x, *reinterpret_cast<Q8Block*>(out));
  });
}
#else
PanelKernel f32_kernel_avx512(DType) { return nullptr; }
PanelKernel int8_kernel_avx512(DType) { return nullptr; }
void quantise_rows_avx512(const FormArgs&, std::int64_t, std::int64_t) {}
#endif

}  // namespace shoal::kernels
