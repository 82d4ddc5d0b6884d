#include "kernels/isa.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace shoal::kernels {
namespace {

class IsaChoice : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* value = std::getenv("SHOAL_ISA")) before_ = value;
  }
  void TearDown() override {
    if (before_.empty()) {
      ::unsetenv("SHOAL_ISA");
    } else {
      ::setenv("SHOAL_ISA", before_.c_str(), 1);
    }
  }
  std::string before_;
};

TEST_F(IsaChoice, IsTheBestWhereNothingIsAsked) {
  ::unsetenv("SHOAL_ISA");
  ASSERT_TRUE(chosen_isa().ok());
  EXPECT_EQ(detected_isa(), *chosen_isa());
}

TEST_F(IsaChoice, FollowsTheVariableDownward) {
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    ::setenv("SHOAL_ISA", std::string(isa_name(isa)).c_str(), 1);
    const auto chosen = chosen_isa();
    if (isa <= detected_isa()) {
      ASSERT_TRUE(chosen.ok());
      EXPECT_EQ(isa, *chosen);
    } else {
      ASSERT_FALSE(chosen.ok());
      EXPECT_EQ(ErrorCode::kUnsupported, chosen.error().code());
    }
  }
}

TEST_F(IsaChoice, NamesTheWordsItKnows) {
  ::setenv("SHOAL_ISA", "sse9", 1);
  const auto chosen = chosen_isa();
  ASSERT_FALSE(chosen.ok());
  EXPECT_EQ(ErrorCode::kInvalidArgument, chosen.error().code());
  EXPECT_EQ("SHOAL_ISA is 'sse9'; known: scalar, avx2, avx512, amx", chosen.error().message());
}

TEST(Isa, AmxImpliesBf16Dot) {
  if (detected_isa() < Isa::kAmx) GTEST_SKIP() << "needs AMX";
  EXPECT_TRUE(has_bf16_dot());
}

}  // namespace
}  // namespace shoal::kernels
