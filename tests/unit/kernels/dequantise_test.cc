#include "kernels/dequantise.h"
#include "material.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

namespace shoal::kernels {
namespace {

// tests/oracle/data/dequantise.bin, written by tests/oracle/make_dequantise_vectors.py.
std::string vectors() {
  std::ifstream file(testing_material::source_tree() / "tests/oracle/data/dequantise.bin", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::uint32_t word_at(const std::string& bytes, std::size_t at) {
  std::uint32_t word;
  std::memcpy(&word, bytes.data() + at, sizeof(word));
  return word;
}

bool same(float a, float b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0 || (std::isnan(a) && std::isnan(b));
}

TEST(Dequantise, EqualsGgmlBitForBit) {
  const std::string file = vectors();
  ASSERT_EQ("SHDQ", file.substr(0, 4));
  std::set<DType> seen;
  std::size_t at = 8;
  for (std::uint32_t i = 0; i < word_at(file, 4); ++i) {
    const auto type = dtype_from_gguf(word_at(file, at));
    const std::uint32_t n = word_at(file, at + 4);
    const std::uint32_t bytes = word_at(file, at + 8);
    at += 12;
    ASSERT_TRUE(type.has_value());
    ASSERT_TRUE(can_dequantise(*type));
    ASSERT_EQ(row_bytes(*type, n), bytes) << dtype_name(*type);
    std::vector<float> expected(n);
    std::memcpy(expected.data(), file.data() + at + bytes, n * sizeof(float));
    std::vector<float> out(n, -7.0F);
    dequantise_row(*type, reinterpret_cast<const std::byte*>(file.data() + at), n, out.data());
    for (std::uint32_t j = 0; j < n; ++j) {
      ASSERT_TRUE(same(expected[j], out[j]))
          << dtype_name(*type) << " element " << j << ": " << out[j] << ", ggml gives " << expected[j];
    }
    seen.insert(*type);
    at += bytes + n * sizeof(float);
  }
  EXPECT_EQ(file.size(), at);
  EXPECT_EQ(14U, seen.size());
}

TEST(Dequantise, CopiesF32AndRefusesIntegers) {
  const float values[3] = {1.5F, -0.0F, 3e-40F};
  float out[3] = {};
  dequantise_row(DType::kF32, reinterpret_cast<const std::byte*>(values), 3, out);
  EXPECT_EQ(0, std::memcmp(values, out, sizeof(out)));
  EXPECT_FALSE(can_dequantise(DType::kI8));
  EXPECT_FALSE(can_dequantise(DType::kI32));
}

}  // namespace
}  // namespace shoal::kernels
