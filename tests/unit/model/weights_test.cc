// Weights that change their type while they are loaded.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "kernels/dequantise.h"
#include "kernels/quantise.h"
#include "material.h"
#include "model/model_rig.h"

namespace shoal::model {
namespace {

std::filesystem::path shared(const std::string& name) { return testing_material::shared() / "models" / name; }

std::unique_ptr<Model> load(const std::filesystem::path& path, ThreadPool& pool, std::optional<DType> weights,
                            std::string* error = nullptr) {
  LoadOptions options;
  options.context.pool = &pool;
  options.context.isa = *kernels::chosen_isa();
  options.weights = weights;
  auto loaded = Model::load(path, options);
  if (!loaded && error != nullptr) *error = loaded.error().message();
  return loaded ? std::move(*loaded) : nullptr;
}

// Elements k.. of both rows as floats.
void expect_same_values(DType from, DType to, const std::byte* row, std::int64_t columns) {
  std::vector<float> want(static_cast<std::size_t>(columns));
  kernels::dequantise_row(from, row, columns, want.data());
  for (std::int64_t k = 0; k < columns; k += 32) {
    float got[32];
    kernels::block_to_f32(to, kernels::convert_block(from, to, row, k), got);
    for (std::int64_t i = 0; i < 32; ++i) {
      const float w = want[static_cast<std::size_t>(k + i)];
      // IQ4_XS: the scale is rounded to 11 bits.
      const float bound = from == DType::kIQ4_XS ? std::fabs(w) * 0x1p-11F + 1e-7F : 0.0F;
      ASSERT_LE(std::fabs(got[i] - w), bound) << dtype_name(from) << " element " << k + i;
    }
  }
}

TEST(Weights, QuantisedBytesAreTheReferenceQuantisers) {
  if (!std::filesystem::exists(shared("story-656k"))) GTEST_SKIP() << "no shared models; set SHOAL_SHARED";
  const auto plain = formats::Checkpoint::open(shared("story-656k/story-656k-f32.gguf"));
  ASSERT_TRUE(plain.ok()) << plain.error().message();
  for (const DType type : {DType::kQ8_0, DType::kQ4_0}) {
    const std::string file = "story-656k/story-656k-" + std::string(dtype_name(type)) + ".gguf";
    const auto quantised = formats::Checkpoint::open(shared(file));
    ASSERT_TRUE(quantised.ok()) << quantised.error().message();
    int compared = 0;
    for (const formats::ModelTensor& want : quantised->tensors()) {
      if (want.type != type) continue;
      const formats::ModelTensor* from = plain->tensor(want.name);
      ASSERT_NE(from, nullptr);
      std::vector<std::byte> got(want.bytes.size());
      kernels::quantise_row(type, reinterpret_cast<const float*>(from->bytes.data()), from->elements(),
                            got.data());
      EXPECT_EQ(std::memcmp(got.data(), want.bytes.data(), got.size()), 0) << want.name;
      ++compared;
    }
    EXPECT_GE(compared, 14) << file;
  }
}

TEST(Weights, BlocksWithInfinitiesOrDenormalsGetCodesInRange) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float odd : {infinity, -infinity, nan, 1e-45F, -1e-40F, 3e38F, 0.0F}) {
    float x[32] = {};
    x[5] = odd;
    x[9] = odd / 2;
    const kernels::WeightBlock eight = kernels::quantise_block(DType::kQ8_0, x);
    const kernels::WeightBlock four = kernels::quantise_block(DType::kQ4_0, x);
    for (int i = 0; i < 32; ++i) {
      EXPECT_GE(eight.q[i], 1) << odd;  // -127
      EXPECT_LE(four.q[i], 15) << odd;
    }
  }
}

TEST(Weights, TypesWithoutAProductKeepTheirValuesInAnother) {
  if (!std::filesystem::exists(shared("random-kquants")))
    GTEST_SKIP() << "no shared models; set SHOAL_SHARED";
  std::vector<DType> seen;
  for (const char* name : {"q2_k", "q3_k_m", "iq4_nl", "iq4_xs"}) {
    const auto model =
        formats::Checkpoint::open(shared("random-kquants/random-" + std::string(name) + ".gguf"));
    ASSERT_TRUE(model.ok()) << model.error().message();
    for (const formats::ModelTensor& tensor : model->tensors()) {
      const DType to = kernels::packed_type(tensor.type);
      if (to == tensor.type || !is_quantised(to)) continue;
      seen.push_back(tensor.type);
      expect_same_values(tensor.type, to, tensor.bytes.data(), tensor.row_length());
    }
  }
  for (const DType type : {DType::kQ3_K, DType::kIQ4_NL, DType::kIQ4_XS})
    EXPECT_NE(std::find(seen.begin(), seen.end(), type), seen.end()) << dtype_name(type);
}

TEST(Weights, AskedForTypeIsPackedAndPartOfTheFingerprint) {
  const test::ScratchFolder folder;
  test::write_model(folder / "model.gguf", DType::kF32);
  ThreadPool pool({.threads = 2, .spin = std::chrono::microseconds(0), .pin = false});
  const auto plain = load(folder / "model.gguf", pool, std::nullopt);
  const auto q8 = load(folder / "model.gguf", pool, DType::kQ8_0);
  const auto q4 = load(folder / "model.gguf", pool, DType::kQ4_0);
  ASSERT_TRUE(plain && q8 && q4);
  EXPECT_LT(q8->weight_bytes() * 3, plain->weight_bytes());
  EXPECT_LT(q4->weight_bytes() * 3, q8->weight_bytes() * 2);
  EXPECT_NE(q8->description().fingerprint, plain->description().fingerprint);
  EXPECT_NE(q8->description().fingerprint, q4->description().fingerprint);
  for (const std::string& line : q8->kernel_report()) EXPECT_NE(line.find("q8_0"), std::string::npos) << line;
}

TEST(Weights, ConvertingWhatIsQuantisedAlreadyIsRefused) {
  const test::ScratchFolder folder;
  test::write_model(folder / "model.gguf", DType::kQ8_0);
  ThreadPool pool({.threads = 1, .spin = std::chrono::microseconds(0), .pin = false});
  std::string error;
  EXPECT_EQ(load(folder / "model.gguf", pool, DType::kQ4_0, &error), nullptr);
  EXPECT_NE(error.find("model.gguf"), std::string::npos) << error;
  EXPECT_NE(error.find("q4_0"), std::string::npos) << error;
}

}  // namespace
}  // namespace shoal::model
