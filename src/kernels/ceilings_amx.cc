#include "kernels/ceilings_kernels.h"

namespace shoal::kernels {

#if defined(__x86_64__)
namespace {

struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

// Four sums: a product takes 52 cycles to finish and the unit begins one every 16.
constexpr double kProducts = 4;

void configure() {
  const TileConfig config;
  asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
  asm volatile(
      "tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3\n\t"
      "tilezero %%tmm4\n\ttilezero %%tmm5"
      :
      :
      : "memory");
}

}  // namespace

double rate_bf16_amx(std::int64_t rounds) {
  configure();
  for (std::int64_t round = 0; round < rounds; ++round) {
    asm volatile(
        "tdpbf16ps %%tmm5, %%tmm4, %%tmm0\n\ttdpbf16ps %%tmm5, %%tmm4, %%tmm1\n\t"
        "tdpbf16ps %%tmm5, %%tmm4, %%tmm2\n\ttdpbf16ps %%tmm5, %%tmm4, %%tmm3"
        :
        :
        : "memory");
  }
  asm volatile("tilerelease" : : : "memory");
  return 2.0 * 16 * 16 * 32 * kProducts * static_cast<double>(rounds);
}

double rate_int8_amx(std::int64_t rounds) {
  configure();
  for (std::int64_t round = 0; round < rounds; ++round) {
    asm volatile(
        "tdpbssd %%tmm5, %%tmm4, %%tmm0\n\ttdpbssd %%tmm5, %%tmm4, %%tmm1\n\t"
        "tdpbssd %%tmm5, %%tmm4, %%tmm2\n\ttdpbssd %%tmm5, %%tmm4, %%tmm3"
        :
        :
        : "memory");
  }
  asm volatile("tilerelease" : : : "memory");
  return 2.0 * 16 * 16 * 64 * kProducts * static_cast<double>(rounds);
}
#else
double rate_bf16_amx(std::int64_t) { return 0; }
double rate_int8_amx(std::int64_t) { return 0; }
#endif

}  // namespace shoal::kernels
