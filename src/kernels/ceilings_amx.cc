#include "kernels/ceilings_kernels.h"

#if defined(__x86_64__)
#include "kernels/tiles_amx.h"
#include "kernels/unroll_inl.h"
#endif

namespace shoal::kernels {

#if defined(__x86_64__)
namespace {

// Sums, tiles 0 to 3: a product takes 52 cycles to finish and the unit begins one every 16. Tiles 4 and 5 are
// the operands.
constexpr int kProducts = 4;

template <class Product>
double run_products(std::int64_t rounds, double operations, Product product) {
  AmxTiles::configure(TileConfig{});
  for (std::int64_t round = 0; round < rounds; ++round) unroll<kProducts>(product);
  AmxTiles::release();
  return operations * kProducts * static_cast<double>(rounds);
}

}  // namespace

double rate_bf16_amx(std::int64_t rounds) {
  return run_products(rounds, 2.0 * 16 * 16 * 32,
                      [](auto sums) SHOAL_INLINE_LAMBDA { AmxTiles::multiply_bf16<sums, 4, 5>(); });
}

double rate_int8_amx(std::int64_t rounds) {
  return run_products(rounds, 2.0 * 16 * 16 * 64, [](auto sums) SHOAL_INLINE_LAMBDA {
    asm volatile("tdpbssd %%tmm5, %%tmm4, %%tmm%c0" : : "i"(decltype(sums)::value));
  });
}
#else
double rate_bf16_amx(std::int64_t) { return 0; }
double rate_int8_amx(std::int64_t) { return 0; }
#endif

}  // namespace shoal::kernels
