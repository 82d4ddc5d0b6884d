#include "serving/prompt_builder.h"

#include <gtest/gtest.h>

#include "serving/serving_rig.h"
#include "tokenizer/tokenizer.h"

namespace shoal::serving {
namespace {

class PromptBuilderTest : public testing::Test {
 protected:
  static std::shared_ptr<const tokenizer::Tokenizer> tokenizer() {
    static const std::shared_ptr<const tokenizer::Tokenizer> loaded =
        *tokenizer::Tokenizer::load(micro_model());
    return loaded;
  }
  static wire::ChatRequest chat(const std::string& body) {
    auto parsed = wire::parse_chat_request(body);
    EXPECT_TRUE(parsed.ok()) << parsed.status().message();
    return *std::move(parsed);
  }

  const PromptBuilder prompts = *PromptBuilder::make(tokenizer(), kContext);
};

TEST_F(PromptBuilderTest, RendersTheConversationAndOpensTheAnswer) {
  const std::string text = *prompts.render(chat(R"({"messages":[{"role":"user","content":"hello"}]})"));
  EXPECT_NE(text.find("hello"), std::string::npos);
  const std::string closed = *prompts.render(
      chat(R"({"messages":[{"role":"user","content":"hello"}],"add_generation_prompt":false})"));
  EXPECT_TRUE(text.starts_with(closed));
  EXPECT_GT(text.size(), closed.size());
  EXPECT_EQ(*prompts.chat(chat(R"({"messages":[{"role":"user","content":"hello"}]})")),
            *tokenizer()->encode(text, {.add_special = false, .parse_special = true}));
}

TEST_F(PromptBuilderTest, ADeveloperIsTheSystemWhereTheTemplateKnowsNone) {
  EXPECT_EQ(*prompts.render(
                chat(R"({"messages":[{"role":"developer","content":"a"},{"role":"user","content":"b"}]})")),
            *prompts.render(
                chat(R"({"messages":[{"role":"system","content":"a"},{"role":"user","content":"b"}]})")));
}

TEST_F(PromptBuilderTest, GoesOnWithTheLastMessage) {
  const std::string text = *prompts.render(
      chat(R"({"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"Once upon"}],
               "continue_final_message":true,"add_generation_prompt":false})"));
  EXPECT_TRUE(text.ends_with("Once upon")) << text;
}

TEST_F(PromptBuilderTest, TextThatCannotFitIsRefusedUnread) {
  const Status refused = prompts.encode(std::string(10'000'000, 'a'), false, "prompt").status();
  EXPECT_EQ(refused.code(), ErrorCode::kTooLong);
  EXPECT_EQ(refused.field(), "prompt");
}

TEST_F(PromptBuilderTest, CompletionsTakeTextAndIds) {
  EXPECT_EQ(*prompts.completion(std::vector<TokenId>{5, 6}), (std::vector<TokenId>{5, 6}));
  EXPECT_EQ(*prompts.completion(std::string("abc")), *tokenizer()->encode("abc", {.add_special = true}));
  for (const TokenId id : {-1, tokenizer()->vocab_size()}) {
    EXPECT_EQ(prompts.completion(std::vector<TokenId>{id}).status().field(), "prompt") << id;
  }
}

TEST_F(PromptBuilderTest, RefusesBrokenKwargsByName) {
  wire::ChatRequest broken = chat(R"({"messages":[{"role":"user","content":"hi"}]})");
  broken.template_kwargs_json = "{";
  EXPECT_EQ(prompts.render(broken).status().field(), "chat_template_kwargs");
}

}  // namespace
}  // namespace shoal::serving
