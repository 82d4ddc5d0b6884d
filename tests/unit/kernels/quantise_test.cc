#include "kernels/quantise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/isa.h"
#include "tensor/half.h"

namespace shoal::kernels {
namespace {

// Blocks of every size of number, with the odd ones among them.
std::vector<float> values() {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> out;
  for (int block = 0; block < 400; ++block) {
    const float scale = std::ldexp(1.0F, block % 80 - 40);
    for (int i = 0; i < 32; ++i) out.push_back(bf16_to_f32(f32_to_bf16(normal(random) * scale)));
  }
  const float odd[] = {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
                       1e-40F, -0.0F, std::numeric_limits<float>::max()};
  for (std::size_t i = 0; i < std::size(odd); ++i) out[32 * i + 5 * i] = bf16_to_f32(f32_to_bf16(odd[i]));
  std::fill(out.begin() + 320, out.begin() + 352, 0.0F);
  return out;
}

TEST(Quantise, GivesTheSameBitsOnEveryInstructionSet) {
  const std::vector<float> x = values();
  std::vector<Bf16> narrow(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) narrow[i] = f32_to_bf16(x[i]);
  for (Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    if (isa > detected_isa()) continue;
    for (const DType to : {DType::kQ8_0, DType::kQ4_0}) {
      for (const DType from : {DType::kF32, DType::kBF16}) {
        const auto* row = from == DType::kF32 ? reinterpret_cast<const std::byte*>(x.data())
                                              : reinterpret_cast<const std::byte*>(narrow.data());
        for (std::size_t k = 0; k < x.size(); k += 32) {
          const auto at = static_cast<std::int64_t>(k);
          const WeightBlock wanted = convert_block(from, to, row, at);
          const WeightBlock got = convert_block(from, to, row, at, isa);
          EXPECT_EQ(got.d, wanted.d) << isa_name(isa) << " " << k;
          EXPECT_EQ(std::memcmp(got.q, wanted.q, sizeof(got.q)), 0) << isa_name(isa) << " " << k;
        }
      }
    }
  }
}

}  // namespace
}  // namespace shoal::kernels
