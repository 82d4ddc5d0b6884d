#include "serving/generate_request.h"

#include <gtest/gtest.h>

#include <limits>

namespace shoal::serving {
namespace {

wire::CommonFields fields() {
  wire::CommonFields common;
  common.rid = "mine";
  common.cache_salt = "salt";
  common.sampling.temperature = 0.5;
  common.sampling.top_k = 7;
  common.sampling.seed = -3;
  common.sampling.n = 2;
  common.sampling.stop = {"end"};
  common.sampling.stop_token_ids = {4};
  common.sampling.logit_bias = {{1, 2.5F}};
  common.sampling.min_tokens = 5;
  common.sampling.max_tokens = 9;
  return common;
}

TEST(GenerateRequest, CarriesEveryFieldOver) {
  const auto made = make_generate_request(fields(), {1, 2, 3}, 10);
  ASSERT_TRUE(made.ok()) << made.error().message();
  EXPECT_EQ(made->rid, "mine");
  EXPECT_EQ(made->cache_salt, "salt");
  EXPECT_EQ(made->prompt, (std::vector<TokenId>{1, 2, 3}));
  EXPECT_EQ(made->n, 2);
  EXPECT_EQ(made->max_tokens, 9);
  EXPECT_EQ(made->stop, std::vector<std::string>{"end"});
  EXPECT_EQ(made->stop_token_ids, std::vector<TokenId>{4});
  EXPECT_EQ(made->sampling.temperature, 0.5F);
  EXPECT_EQ(made->sampling.top_k, 7);
  EXPECT_EQ(made->sampling.seed, static_cast<std::uint64_t>(-3));
  EXPECT_EQ(made->sampling.min_tokens, 5);
  EXPECT_EQ(made->sampling.logprobs, -1) << "not asked for";
}

TEST(GenerateRequest, WithoutALimitTheContextIsTheLimit) {
  wire::CommonFields common = fields();
  common.sampling.max_tokens.reset();
  EXPECT_EQ(make_generate_request(common, {1}, 10)->max_tokens, std::numeric_limits<std::int32_t>::max());
}

TEST(GenerateRequest, DrawsASeedWhereTheClientGaveNone) {
  wire::CommonFields common = fields();
  common.sampling.seed.reset();
  EXPECT_NE(make_generate_request(common, {1}, 10)->sampling.seed,
            make_generate_request(common, {1}, 10)->sampling.seed);
}

TEST(GenerateRequest, LogprobsAsked) {
  wire::CommonFields common = fields();
  common.sampling.logprobs = true;
  common.sampling.top_logprobs = 3;
  EXPECT_EQ(make_generate_request(common, {1}, 10)->sampling.logprobs, 3);
}

TEST(GenerateRequest, IdsOutsideTheVocabularyAreRefusedByField) {
  for (const TokenId outside : {10, 1000}) {
    wire::CommonFields bias = fields();
    bias.sampling.logit_bias = {{outside, 1.0F}};
    EXPECT_EQ(make_generate_request(bias, {1}, 10).status().field(), "logit_bias");
    wire::CommonFields stop = fields();
    stop.sampling.stop_token_ids = {outside};
    const Status refused = make_generate_request(stop, {1}, 10).status();
    EXPECT_EQ(refused.field(), "stop_token_ids");
    EXPECT_NE(refused.message().find("tokens 0 to 9"), std::string::npos) << refused.message();
  }
}

}  // namespace
}  // namespace shoal::serving
