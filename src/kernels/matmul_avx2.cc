#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/matmul_block_inl.h"

namespace shoal::kernels {

#if defined(__x86_64__)
namespace {

struct Avx2 {
  struct F {
    __m256 low, high;
  };
  struct I {
    __m256i low, high;
  };
  static constexpr int kBlocks = 1;
  static constexpr bool kSignedDot = true;
  // 2 x 255 x 127 would not fit the 16-bit pair sums.
  static constexpr bool kShiftsCodes = false;

  static SHOAL_INLINE F zero_f() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static SHOAL_INLINE F load_f(const void* p) {
    const auto* f = static_cast<const float*>(p);
    return {_mm256_loadu_ps(f), _mm256_loadu_ps(f + 8)};
  }
  static SHOAL_INLINE F load_f(const std::byte* p) { return as_f(load_i(p)); }
  static SHOAL_INLINE void store(float* p, F v) {
    _mm256_storeu_ps(p, v.low);
    _mm256_storeu_ps(p + 8, v.high);
  }
  static SHOAL_INLINE void stream(float* p, F v) {
    _mm256_stream_ps(p, v.low);
    _mm256_stream_ps(p + 8, v.high);
  }
  static SHOAL_INLINE void fence_streams() { _mm_sfence(); }
  static SHOAL_INLINE F from_f16(const std::byte* p) {
    const auto* h = reinterpret_cast<const __m128i*>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(h)), _mm256_cvtph_ps(_mm_loadu_si128(h + 1))};
  }
  static SHOAL_INLINE F from_u8(const std::byte* p) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return to_f({_mm256_cvtepu8_epi32(v), _mm256_cvtepu8_epi32(_mm_srli_si128(v, 8))});
  }
  static SHOAL_INLINE F from_i8(const std::byte* p) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return to_f({_mm256_cvtepi8_epi32(v), _mm256_cvtepi8_epi32(_mm_srli_si128(v, 8))});
  }
  static SHOAL_INLINE F to_f(I v) { return {_mm256_cvtepi32_ps(v.low), _mm256_cvtepi32_ps(v.high)}; }
  static SHOAL_INLINE F as_f(I v) { return {_mm256_castsi256_ps(v.low), _mm256_castsi256_ps(v.high)}; }
  static SHOAL_INLINE F mul(F a, F b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
  static SHOAL_INLINE F mul_scalar(F a, float b) { return mul(a, {_mm256_set1_ps(b), _mm256_set1_ps(b)}); }
  static SHOAL_INLINE F add(F a, F b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
  static SHOAL_INLINE F negate(F a) {
    const __m256 sign = _mm256_set1_ps(-0.0F);
    return {_mm256_xor_ps(a.low, sign), _mm256_xor_ps(a.high, sign)};
  }
  static SHOAL_INLINE F fma(F a, const float* scalar, F acc) {
    const __m256 b = _mm256_broadcast_ss(scalar);
    return {_mm256_fmadd_ps(a.low, b, acc.low), _mm256_fmadd_ps(a.high, b, acc.high)};
  }

  static SHOAL_INLINE I zero_i() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static SHOAL_INLINE I load_i(const std::byte* p) {
    const auto* v = reinterpret_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(v), _mm256_loadu_si256(v + 1)};
  }
  static SHOAL_INLINE I set1(std::int32_t value) {
    const __m256i v = _mm256_set1_epi32(value);
    return {v, v};
  }
  static SHOAL_INLINE I sub(I a, I b) {
    return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
  }
  template <int n>
  static SHOAL_INLINE I shl(I a) {
    return {_mm256_slli_epi32(a.low, n), _mm256_slli_epi32(a.high, n)};
  }
  template <int n>
  static SHOAL_INLINE I shr(I a) {
    return {_mm256_srli_epi32(a.low, n), _mm256_srli_epi32(a.high, n)};
  }
  template <int n>
  static SHOAL_INLINE I sar(I a) {
    return {_mm256_srai_epi32(a.low, n), _mm256_srai_epi32(a.high, n)};
  }
  static SHOAL_INLINE I bits(I a, std::uint32_t mask) {
    const __m256i m = _mm256_set1_epi32(static_cast<std::int32_t>(mask));
    return {_mm256_and_si256(a.low, m), _mm256_and_si256(a.high, m)};
  }
  static SHOAL_INLINE I or_bits(I a, I b, std::uint32_t mask) {
    const I masked = bits(b, mask);
    return {_mm256_or_si256(a.low, masked.low), _mm256_or_si256(a.high, masked.high)};
  }
  static SHOAL_INLINE I load_four(const std::int8_t* x) {
    std::int32_t four;
    __builtin_memcpy(&four, x, sizeof(four));
    return set1(four);
  }
  static SHOAL_INLINE __m256i pairs_to_sums(__m256i acc, __m256i pairs) {
    return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  // Codes up to 63: 2 x 63 x 127 = 16,002 fits the 16-bit pair sums.
  static SHOAL_INLINE I dot(I acc, I codes, I four) {
    return {pairs_to_sums(acc.low, _mm256_maddubs_epi16(codes.low, four.low)),
            pairs_to_sums(acc.high, _mm256_maddubs_epi16(codes.high, four.high))};
  }
  // |w| times x with w's sign: 2 x 128 x 127 = 32,512 still fits, 2 x 255 x 127 would saturate.
  static SHOAL_INLINE __m256i signed_pairs(__m256i codes, __m256i four) {
    const __m256i w = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(four, w));
  }
  static SHOAL_INLINE I dot_signed(I acc, I codes, I four) {
    return {pairs_to_sums(acc.low, signed_pairs(codes.low, four.low)),
            pairs_to_sums(acc.high, signed_pairs(codes.high, four.high))};
  }
};

// How the codes of a type go through 16-bit sums: `planes` of codes, `fold` pair products that fit one 16-bit
// sum, and by how much x.start is shifted down for the type's offset.
template <int planes, int fold, int down>
struct Planes {
  static constexpr int kPlanes = planes;
  static constexpr int kFold = fold;
  static constexpr int kDown = down;
  static SHOAL_INLINE void put(Avx2::I codes, std::byte* out) {
    if constexpr (planes == 1) {
      store(codes, out);
    } else {
      store(Avx2::bits(codes, 0x0f0f0f0f), out);
      store(Avx2::bits(Avx2::shr<4>(codes), 0x0f0f0f0f), out + 1024);
    }
  }
  static SHOAL_INLINE void store(Avx2::I codes, std::byte* out) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(out), codes.low);
    _mm256_store_si256(reinterpret_cast<__m256i*>(out + 32), codes.high);
  }
};

struct Avx2Block : Avx2 {
  static constexpr int kDirectRows = 2;
  static constexpr int kBlockRows = 4;

  // Pair products of codes of b bits are at most 2 (2^b - 1) 127, so 8, 4 and 2 of them fit for 4, 5 and 6
  // bits. 8-bit codes go as two planes of 4 bits: 4 operations for 32 products as with the sign trick of
  // dot_signed, but 2 of them, not 3, on the two ports that multiply.
  static constexpr int fold_of(int bits) { return bits == 6 ? 2 : bits == 5 ? 4 : 8; }
  template <DType type>
  using Codes = Planes<payload_bits(type) == 8 ? 2 : 1, fold_of(payload_bits(type)),
                       offset_of(type) == 0 ? 0 : 7 - log2_of(offset_of(type))>;

  // Integer sums of R rows x 8H outputs over groups [first, first + kGroups).
  template <class Codes, int first, int kGroups, int R, int H>
  static SHOAL_INLINE void add_groups(const std::byte* w, const Q8Block* x, __m256i (&sums)[R][H]) {
    const __m256i ones = _mm256_set1_epi16(1);
    unroll<kGroups / Codes::kFold>([&](auto fold) SHOAL_INLINE_LAMBDA {
      __m256i pairs[Codes::kPlanes][R][H];
      unroll<Codes::kFold>([&](auto i) SHOAL_INLINE_LAMBDA {
        constexpr int g = first + fold * Codes::kFold + i;
        __m256i codes[Codes::kPlanes][H];
        unroll<Codes::kPlanes>([&](auto p) SHOAL_INLINE_LAMBDA {
          unroll<H>([&](auto h) SHOAL_INLINE_LAMBDA {
            codes[p][h] = _mm256_load_si256(reinterpret_cast<const __m256i*>(w + 1024 * p + 64 * g + 32 * h));
          });
        });
        unroll<R>([&](auto r) SHOAL_INLINE_LAMBDA {
          std::int32_t four;
          __builtin_memcpy(&four, x[r].q + 4 * g, sizeof(four));
          const __m256i xs = _mm256_set1_epi32(four);
          unroll<Codes::kPlanes>([&](auto p) SHOAL_INLINE_LAMBDA {
            unroll<H>([&](auto h) SHOAL_INLINE_LAMBDA {
              const __m256i product = _mm256_maddubs_epi16(codes[p][h], xs);
              pairs[p][r][h] = i == 0 ? product : _mm256_add_epi16(pairs[p][r][h], product);
              // Left to itself the compiler adds in trees, all products first: half of them would spill.
              asm("" : "+x"(pairs[p][r][h]));
            });
          });
        });
      });
      unroll<R>([&](auto r) SHOAL_INLINE_LAMBDA {
        unroll<H>([&](auto h) SHOAL_INLINE_LAMBDA {
          __m256i sum = _mm256_madd_epi16(pairs[0][r][h], ones);
          if constexpr (Codes::kPlanes == 2) {
            const __m256i upper = _mm256_madd_epi16(pairs[1][r][h], ones);
            sum = _mm256_add_epi32(sum, _mm256_slli_epi32(upper, 4));
          }
          sums[r][h] = _mm256_add_epi32(sums[r][h], sum);
        });
      });
    });
  }

  template <Terms terms, class Codes, int R>
  static void multiply(const std::byte* w, std::int64_t steps, const Q8Block* x, float* sums, Ahead& ahead) {
    constexpr int halves = terms == Terms::kHalves ? 2 : 1;
    // As many outputs at once as leave registers for R rows of 16-bit and 32-bit sums.
    constexpr int H = Codes::kPlanes == 1 && Codes::kFold == 8 ? 2 : 1;
    for (std::int64_t s = 0; s < steps; ++s, w += int8_step_bytes(Codes::kPlanes), x += kGroupRows) {
      ahead.step();
      for (int c = 0; c < 4 / H; ++c) {
        const auto* scales = reinterpret_cast<const float*>(w + 1024 * Codes::kPlanes) + 8 * H * c;
        const std::byte* codes = w + 32 * H * c + (H * c / 2) * (512 - 64);
        unroll<halves>([&](auto half) SHOAL_INLINE_LAMBDA {
          __m256i products[R][H];
          unroll<R>([&](auto r) SHOAL_INLINE_LAMBDA {
            unroll<H>([&](auto h) SHOAL_INLINE_LAMBDA {
              products[r][h] = _mm256_setzero_si256();
              if constexpr (terms == Terms::kOffset)
                products[r][h] = _mm256_set1_epi32(x[r].start >> Codes::kDown);
              if constexpr (terms == Terms::kHalves) {
                products[r][h] = _mm256_set1_epi32(
                    (half == 0 ? x[r].start_low : x[r].start - x[r].start_low) >> Codes::kDown);
              }
            });
          });
          add_groups<Codes, half * 8 / halves, 8 / halves>(codes, x, products);
          unroll<R>([&](auto r) SHOAL_INLINE_LAMBDA {
            unroll<H>([&](auto h) SHOAL_INLINE_LAMBDA {
              __m256 t = _mm256_mul_ps(_mm256_cvtepi32_ps(products[r][h]),
                                       _mm256_loadu_ps(scales + 32 * half + 8 * h));
              if constexpr (terms == Terms::kMinimum) {
                t = _mm256_fmadd_ps(_mm256_loadu_ps(scales + 32 + 8 * h), _mm256_broadcast_ss(&x[r].sum), t);
              }
              float* sum = sums + r * kPairColumns + 8 * (H * c + h);
              _mm256_storeu_ps(sum,
                               _mm256_fmadd_ps(t, _mm256_broadcast_ss(&x[r].scale), _mm256_loadu_ps(sum)));
            });
          });
        });
      }
    }
  }
};

SHOAL_INLINE std::int32_t sum_of(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
  return _mm_cvtsi128_si32(s);
}

SHOAL_INLINE std::uint32_t largest_of(__m256i v) {
  __m128i s = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0xb1));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(s));
}

SHOAL_INLINE void quantise_block(const float* x, Q8Block& out) {
  __m256 v[4];
  __m256i largest = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_loadu_ps(x + 8 * i);
    largest =
        _mm256_max_epi32(largest, _mm256_and_si256(_mm256_castps_si256(v[i]), _mm256_set1_epi32(0x7fffffff)));
  }
  const std::uint32_t bits = largest_of(largest);
  float amax;
  __builtin_memcpy(&amax, &bits, sizeof(amax));
  __m256i* q = reinterpret_cast<__m256i*>(out.q);
  if (bits >= 0x7f800000U || amax < kSmallestQuantised) {
    _mm256_storeu_si256(q, _mm256_setzero_si256());
    out.scale = bits >= 0x7f800000U ? __builtin_nanf("") : 0.0F;
    out.sum = 0;
    out.start = 0;
    out.start_low = 0;
    return;
  }
  const __m256 inverse = _mm256_set1_ps(127.0F / amax);
  __m256i codes[4];
  for (int i = 0; i < 4; ++i) codes[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
  // Packing works in halves of 128 bits; the permutation puts the dwords back in order.
  const __m256i packed =
      _mm256_packs_epi16(_mm256_packs_epi32(codes[0], codes[1]), _mm256_packs_epi32(codes[2], codes[3]));
  _mm256_storeu_si256(q, _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
  const std::int32_t low = sum_of(_mm256_add_epi32(codes[0], codes[1]));
  const std::int32_t all = low + sum_of(_mm256_add_epi32(codes[2], codes[3]));
  out.scale = amax / 127.0F;
  out.sum = static_cast<float>(all);
  out.start = -128 * all;
  out.start_low = -128 * low;
}

}  // namespace

PanelKernel f32_kernel_avx2(DType type) { return f32_kernel<Avx2Block>(type); }
PanelKernel int8_kernel_avx2(DType type) { return int8_kernel<Avx2Block>(type); }

void quantise_rows_avx2(const FormArgs& args, std::int64_t step_begin, std::int64_t step_end) {
  for_each_form_step(args, step_begin, step_end, [](const float* x, std::int64_t, std::byte* out) {
    quantise_block(x, *reinterpret_cast<Q8Block*>(out));
  });
}
#else
PanelKernel f32_kernel_avx2(DType) { return nullptr; }
PanelKernel int8_kernel_avx2(DType) { return nullptr; }
void quantise_rows_avx2(const FormArgs&, std::int64_t, std::int64_t) {}
#endif

}  // namespace shoal::kernels
