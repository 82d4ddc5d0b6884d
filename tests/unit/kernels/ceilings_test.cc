#include "kernels/ceilings.h"

#include <gtest/gtest.h>

#include "core/thread_pool.h"

namespace shoal::kernels {
namespace {

TEST(Ceilings, AreMeasuredForEachInstructionThatTheMachineHas) {
  ThreadPool pool({.threads = 2});
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    if (isa > detected_isa()) continue;
    SCOPED_TRACE(isa_name(isa));
    const auto ceilings = measure_ceilings({.pool = &pool, .isa = isa}, std::size_t{32} << 20);
    ASSERT_TRUE(ceilings.ok()) << ceilings.error().message();
    // Wide enough for any machine, narrow enough to catch a unit or a loop that the compiler dropped.
    EXPECT_GT(ceilings->read.together, 0.01);
    EXPECT_LT(ceilings->read.together, 5'000);
    EXPECT_EQ(ceilings->read.alone.size(), 2U);
    for (const Ceiling& ceiling : ceilings->compute) {
      SCOPED_TRACE(ceiling.name);
      EXPECT_GT(ceiling.together, 1e-4);
      EXPECT_LT(ceiling.together, 100);
      EXPECT_EQ(ceiling.alone.size(), 2U);
    }
    EXPECT_EQ(ceilings->find("amx bf16") != nullptr, isa == Isa::kAmx);
    EXPECT_EQ(ceilings->find("int8 dot") != nullptr, isa >= Isa::kAvx2);
    EXPECT_NE(ceilings->find("f32 fma"), nullptr);
    EXPECT_EQ(ceilings->find("no such"), nullptr);
  }
}

TEST(Ceilings, ChoosesTheFastestInstructionOfAPath) {
  Ceilings ceilings;
  ceilings.read.name = "read";
  ceilings.compute = {{"f32 fma", {1}, 1}, {"int8 dot", {4}, 4}, {"bf16 dot", {2}, 2}, {"amx bf16", {9}, 9}};
  EXPECT_EQ(ceiling_of(ceilings, DType::kQ8_0, 1).name, "int8 dot");
  EXPECT_EQ(ceiling_of(ceilings, DType::kQ4_K, 512).name, "amx bf16");
  EXPECT_EQ(ceiling_of(ceilings, DType::kBF16, 1).name, "bf16 dot");
  EXPECT_EQ(ceiling_of(ceilings, DType::kBF16, 16).name, "amx bf16");
  EXPECT_EQ(ceiling_of(ceilings, DType::kF32, 512).name, "f32 fma");
  ceilings.compute.resize(1);
  EXPECT_EQ(ceiling_of(ceilings, DType::kQ8_0, 512).name, "f32 fma");
}

TEST(Ceilings, ScalingIsAgainstTheBestThreadAlone) {
  EXPECT_DOUBLE_EQ((Ceiling{"read", {2, 4}, 6}.scaling()), 1.5);
  EXPECT_DOUBLE_EQ((Ceiling{"read", {}, 6}.scaling()), 1);
}

}  // namespace
}  // namespace shoal::kernels
