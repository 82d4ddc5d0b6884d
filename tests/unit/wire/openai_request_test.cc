#include "wire/openai_request.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "wire/json.h"

namespace shoal::wire {
namespace {

constexpr std::string_view kMessages = R"("messages":[{"role":"user","content":"hi"}])";

Expected<ChatRequest> chat(std::string_view fields) {
  return parse_chat_request(fmt::format("{{{}{}{}}}", kMessages, fields.empty() ? "" : ",", fields));
}
Expected<CompletionRequest> completion(std::string_view fields) {
  return parse_completion_request(fmt::format(R"({{"prompt":"hi"{}{}}})", fields.empty() ? "" : ",", fields));
}

// The field that a failed request names; "ok" where it did not fail.
template <typename T>
std::string field_of(const Expected<T>& request) {
  if (request.ok()) return "ok";
  EXPECT_EQ(request.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_FALSE(request.error().message().empty());
  return request.error().field();
}

TEST(ChatRequest, HasOpenAiDefaults) {
  const auto request = chat("");
  ASSERT_TRUE(request.ok());
  const SamplingFields& s = request->common.sampling;
  EXPECT_EQ(s.temperature, 1.0);
  EXPECT_EQ(s.top_p, 1.0);
  EXPECT_EQ(s.n, 1);
  EXPECT_FALSE(s.max_tokens);
  EXPECT_FALSE(s.seed);
  EXPECT_FALSE(s.logprobs);
  EXPECT_FALSE(request->common.stream);
  EXPECT_TRUE(request->add_generation_prompt);
  EXPECT_EQ(request->messages.size(), 1U);
}

TEST(ChatRequest, RefusesHalfASurrogatePairWhereverJsonIsKeptAsItIs) {
  // Some parsers refuse it themselves, before any field is known.
  const bool by_parser = !JsonDocument::parse(R"({"a":"\udc00"})").ok();
  const auto named = [by_parser](std::string field) { return by_parser ? std::string() : field; };
  EXPECT_EQ(field_of(chat(R"("tools":[{"type":"function","function":{"name":"f","description":"\udc00"}}])")),
            named("tools"));
  EXPECT_EQ(field_of(chat(R"("chat_template_kwargs":{"a":"\udc00"})")), named("chat_template_kwargs"));
  EXPECT_EQ(field_of(chat(R"("chat_template_kwargs":{"\udc00":1})")), named("chat_template_kwargs"));
  const auto with_call = [](std::string_view call) {
    return parse_chat_request(
        fmt::format(R"({{"messages":[{{"role":"assistant","tool_calls":[{}]}}]}})", call));
  };
  EXPECT_EQ(field_of(with_call(R"({"id":"\udc00","function":{"name":"f"}})")),
            named("messages[0].tool_calls[0]"));
  EXPECT_EQ(field_of(with_call(R"({"function":{"name":"f","x":"\udc00"}})")),
            named("messages[0].tool_calls[0].function"));
  EXPECT_EQ(field_of(with_call(R"({"function":{"name":"f","arguments":"{\"a\":\"\\udc00\"}"}})")),
            by_parser ? "ok" : "messages[0].tool_calls[0].function.arguments");
}

TEST(ChatRequest, RefusesControlCharactersInRid) {
  EXPECT_EQ(field_of(chat(R"("rid":"a\nb")")), "rid");
  EXPECT_EQ(field_of(chat(R"("rid":"a\u007f")")), "rid");
  EXPECT_EQ(field_of(chat(R"("rid":"a b-\u00e9")")), "ok");
}

TEST(ChatRequest, ReadsEveryField) {
  const auto request = chat(R"(
    "model":"m","temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.05,"repetition_penalty":1.1,
    "frequency_penalty":-1,"presence_penalty":2,"logit_bias":{"5":-100,"7":1.5},"seed":-9,"stop":["a","b"],
    "stop_token_ids":[1,2],"min_tokens":3,"ignore_eos":true,"n":4,"logprobs":true,"top_logprobs":20,
    "max_tokens":10,"max_completion_tokens":20,"stream":true,"stream_options":{"include_usage":true},
    "user":"u","rid":"r","cache_salt":"s","skip_special_tokens":false,"reasoning_effort":"low",
    "chat_template_kwargs":{"z":1,"a":2},"add_generation_prompt":false,"tool_choice":"none","unknown":{"x":[1]},
    "response_format":{"type":"text"})");
  ASSERT_TRUE(request.ok()) << request.error().message();
  const SamplingFields& s = request->common.sampling;
  EXPECT_EQ(s.temperature, 0.5);
  EXPECT_EQ(s.top_p, 0.9);
  EXPECT_EQ(s.top_k, 40);
  EXPECT_EQ(s.min_p, 0.05);
  EXPECT_EQ(s.repetition_penalty, 1.1);
  EXPECT_EQ(s.frequency_penalty, -1);
  EXPECT_EQ(s.presence_penalty, 2);
  EXPECT_EQ(s.logit_bias, (std::vector<std::pair<TokenId, float>>{{5, -100.F}, {7, 1.5F}}));
  EXPECT_EQ(s.seed, -9);
  EXPECT_EQ(s.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(s.stop_token_ids, (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(s.min_tokens, 3);
  EXPECT_TRUE(s.ignore_eos);
  EXPECT_FALSE(s.skip_special_tokens);
  EXPECT_EQ(s.n, 4);
  EXPECT_TRUE(s.logprobs);
  EXPECT_EQ(s.top_logprobs, 20);
  EXPECT_EQ(s.max_tokens, 20) << "max_completion_tokens takes precedence";
  EXPECT_TRUE(request->common.stream);
  EXPECT_TRUE(request->common.include_usage);
  EXPECT_EQ(request->common.model, "m");
  EXPECT_EQ(request->common.user, "u");
  EXPECT_EQ(request->common.rid, "r");
  EXPECT_EQ(request->common.cache_salt, "s");
  EXPECT_EQ(request->reasoning_effort, "low");
  EXPECT_EQ(request->template_kwargs_json, R"({"z":1,"a":2})");
  EXPECT_FALSE(request->add_generation_prompt);
  EXPECT_TRUE(request->tool_choice_none);
}

TEST(ChatRequest, NullMeansAbsent) {
  for (const std::string_view name : {"temperature",
                                      "top_p",
                                      "top_k",
                                      "stop",
                                      "seed",
                                      "logit_bias",
                                      "n",
                                      "max_tokens",
                                      "max_completion_tokens",
                                      "stream",
                                      "stream_options",
                                      "logprobs",
                                      "top_logprobs",
                                      "tools",
                                      "tool_choice",
                                      "response_format",
                                      "user",
                                      "chat_template_kwargs",
                                      "stop_token_ids",
                                      "functions",
                                      "modalities",
                                      "guided_json",
                                      "rid"}) {
    EXPECT_EQ(field_of(chat(fmt::format(R"("{}":null)", name))), "ok") << name;
  }
  EXPECT_EQ(
      field_of(completion(R"("suffix":null,"best_of":null,"echo":null,"logprobs":null,"max_tokens":null)")),
      "ok");
}

struct BadField {
  std::string_view json;
  std::string_view field;
};

TEST(ChatRequest, NamesTheFieldThatIsWrong) {
  for (const auto& [json, field] : std::vector<BadField>{
           {R"("temperature":-0.1)", "temperature"},
           {R"("temperature":2.1)", "temperature"},
           {R"("temperature":"hot")", "temperature"},
           {R"("temperature":true)", "temperature"},
           {R"("top_p":0)", "top_p"},
           {R"("top_p":1.01)", "top_p"},
           {R"("top_k":-2)", "top_k"},
           {R"("top_k":1.5)", "top_k"},
           {R"("min_p":-1)", "min_p"},
           {R"("min_p":1.5)", "min_p"},
           {R"("repetition_penalty":0)", "repetition_penalty"},
           {R"("frequency_penalty":2.5)", "frequency_penalty"},
           {R"("presence_penalty":-2.5)", "presence_penalty"},
           {R"("n":0)", "n"},
           {R"("n":129)", "n"},
           {R"("n":"2")", "n"},
           {R"("max_tokens":0)", "max_tokens"},
           {R"("max_tokens":-1)", "max_tokens"},
           {R"("max_tokens":1e12)", "max_tokens"},
           {R"("max_completion_tokens":-5)", "max_completion_tokens"},
           {R"("min_tokens":-1)", "min_tokens"},
           {R"("min_tokens":5,"max_tokens":4)", "min_tokens"},
           {R"("seed":1.5)", "seed"},
           {R"("seed":9223372036854775808)", "seed"},
           {R"("stop":5)", "stop"},
           {R"("stop":"")", "stop"},
           {R"("stop":["a",5])", "stop[1]"},
           {R"("stop":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])",
            "stop"},
           {R"("stop_token_ids":[-1])", "stop_token_ids[0]"},
           {R"("stop_token_ids":5)", "stop_token_ids"},
           {R"("logit_bias":[1])", "logit_bias"},
           {R"("logit_bias":{"x":1})", "logit_bias"},
           {R"("logit_bias":{"-1":1})", "logit_bias"},
           {R"("logit_bias":{"1":101})", "logit_bias[1]"},
           {R"("logprobs":1)", "logprobs"},
           {R"("logprobs":true,"top_logprobs":21)", "top_logprobs"},
           {R"("top_logprobs":2)", "top_logprobs"},
           {R"("stream":"yes")", "stream"},
           {R"("stream_options":{"include_usage":true})", "stream_options"},
           {R"("stream":true,"stream_options":5)", "stream_options"},
           {R"("stream":true,"stream_options":{"include_usage":1})", "stream_options.include_usage"},
           {R"("ignore_eos":0)", "ignore_eos"},
           {R"("user":5)", "user"},
           {R"("model":["m"])", "model"},
           {R"("chat_template_kwargs":[])", "chat_template_kwargs"},
           {R"("tools":{})", "tools"},
           {R"("tools":[{"type":"function"}])", "tools[0].function"},
           {R"("tools":[{"type":"function","function":{}}])", "tools[0].function.name"},
           {R"("tool_choice":"sometimes")", "tool_choice"},
           {R"("continue_final_message":true)", "continue_final_message"}}) {
    EXPECT_EQ(field_of(chat(json)), field) << json;
  }
}

TEST(ChatRequest, RefusesWhatIsKnownAndNotBuilt) {
  for (const auto& [json, field] : std::vector<BadField>{
           {R"("response_format":{"type":"json_object"})", "response_format"},
           {R"("response_format":{"type":"json_schema","json_schema":{}})", "response_format"},
           {R"("response_format":{})", "response_format"},
           {R"("tool_choice":"required")", "tool_choice"},
           {R"("tool_choice":{"type":"function","function":{"name":"f"}})", "tool_choice"},
           {R"("tools":[{"type":"web_search"}])", "tools[0].type"},
           {R"("guided_json":{"type":"object"})", "guided_json"},
           {R"("regex":"a+")", "regex"},
           {R"("functions":[{"name":"f"}])", "functions"},
           {R"("modalities":["text","audio"])", "modalities"}}) {
    EXPECT_EQ(field_of(chat(json)), field) << json;
  }
  EXPECT_EQ(field_of(chat(R"("guided_json":{},"regex":"","functions":[],"use_beam_search":false)")), "ok");
}

TEST(ChatRequest, ChecksMessages) {
  const auto field = [](std::string_view messages) {
    return field_of(parse_chat_request(fmt::format(R"({{"messages":{}}})", messages)));
  };
  EXPECT_EQ(field_of(parse_chat_request("{}")), "messages");
  EXPECT_EQ(field("[]"), "messages");
  EXPECT_EQ(field("5"), "messages");
  EXPECT_EQ(field("[5]"), "messages[0]");
  EXPECT_EQ(field(R"([{"content":"x"}])"), "messages[0].role");
  EXPECT_EQ(field(R"([{"role":"wizard","content":"x"}])"), "messages[0].role");
  EXPECT_EQ(field(R"([{"role":"user"}])"), "messages[0].content");
  EXPECT_EQ(field(R"([{"role":"user","content":null}])"), "messages[0].content");
  EXPECT_EQ(field(R"([{"role":"user","content":5}])"), "messages[0].content");
  EXPECT_EQ(field(R"([{"role":"user","content":[5]}])"), "messages[0].content[0]");
  EXPECT_EQ(
      field(
          R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{}}]}])"),
      "messages[0].content[1].type");
  EXPECT_EQ(field(R"([{"role":"user","content":[{"type":"input_audio"}]}])"), "messages[0].content[0].type");
  EXPECT_EQ(field(R"([{"role":"user","content":[{"type":"text"}]}])"), "messages[0].content[0].text");
  EXPECT_EQ(field(R"([{"role":"user","content":"a"},{"role":"assistant","tool_calls":[{}]}])"),
            "messages[1].tool_calls[0].function");
  EXPECT_EQ(field(R"([{"role":"assistant","content":null}])"), "ok");
}

TEST(ChatRequest, JoinsTextPartsAndKeepsRoles) {
  const auto request = parse_chat_request(
      R"({"messages":[{"role":"developer","content":"be brief"},
          {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]})");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->messages[0].role, "developer");
  EXPECT_EQ(request->messages[1].content, "a\nb");
}

TEST(ChatRequest, KeepsToolsInTheirOrderAndUnwrapsArguments) {
  const auto request = parse_chat_request(
      R"({"messages":[{"role":"user","content":"w"},
           {"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",
             "function":{"name":"f","arguments":"{\"z\": 1, \"a\": [true]}"}},
             {"id":"c2","type":"function","function":{"name":"g","arguments":"not json"}}]},
           {"role":"tool","tool_call_id":"c1","name":"f","content":"42"}],
          "tools":[{"type":"function","function":{"name":"f","parameters":{"z":1,"a":2.5}}}]})");
  ASSERT_TRUE(request.ok()) << request.error().message();
  EXPECT_EQ(request->tools_json,
            R"([{"type":"function","function":{"name":"f","parameters":{"z":1,"a":2.5}}}])");
  const std::string json = messages_json(request->messages);
  EXPECT_EQ(
      json,
      R"([{"role":"user","content":"w"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1",)"
      R"("type":"function","function":{"name":"f","arguments":{"z":1,"a":[true]}}},{"id":"c2","type":"function",)"
      R"("function":{"name":"g","arguments":"not json"}}]},)"
      R"({"role":"tool","content":"42","name":"f","tool_call_id":"c1"}])");
  EXPECT_TRUE(nlohmann::json::accept(json));
}

TEST(ChatRequest, GoesOnWithAnAssistantsMessage) {
  const auto request = parse_chat_request(
      R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}],"continue_final_message":true})");
  ASSERT_TRUE(request.ok());
  EXPECT_FALSE(request->add_generation_prompt);
  EXPECT_EQ(field_of(parse_chat_request(
                R"({"messages":[{"role":"assistant","content":"b"}],"continue_final_message":true,
                    "add_generation_prompt":true})")),
            "add_generation_prompt");
}

TEST(ChatRequest, RefusesBodiesThatAreNoObject) {
  EXPECT_FALSE(parse_chat_request("[]").ok());
  EXPECT_FALSE(parse_chat_request("5").ok());
  EXPECT_FALSE(parse_chat_request("").ok());
  EXPECT_FALSE(parse_chat_request("\xff\xfe").ok());
}

TEST(ChatRequest, DoesNotEchoLongWords) {
  const auto request = chat(fmt::format(R"("response_format":{{"type":"{}ä"}})", std::string(100'000, 'x')));
  ASSERT_FALSE(request.ok());
  EXPECT_LT(request.error().message().size(), 120U);
}

TEST(ChatRequest, TinyPositiveNumbersStayPositiveAsFloats) {
  const auto request = chat(R"("top_p":1e-300,"repetition_penalty":1e-300)");
  ASSERT_TRUE(request.ok());
  EXPECT_GT(static_cast<float>(request->common.sampling.top_p), 0.F);
  EXPECT_GT(static_cast<float>(request->common.sampling.repetition_penalty), 0.F);
}

TEST(CompletionRequest, TakesPromptsInAllForms) {
  const auto prompts = [](std::string_view json) {
    return parse_completion_request(fmt::format(R"({{"prompt":{}}})", json));
  };
  EXPECT_EQ(std::get<std::string>(prompts(R"("a")")->prompts[0]), "a");
  const auto strings = prompts(R"(["a","b"])");
  ASSERT_EQ(strings->prompts.size(), 2U);
  EXPECT_EQ(std::get<std::string>(strings->prompts[1]), "b");
  const auto ids = prompts("[1,2,3]");
  ASSERT_EQ(ids->prompts.size(), 1U);
  EXPECT_EQ(std::get<std::vector<TokenId>>(ids->prompts[0]), (std::vector<TokenId>{1, 2, 3}));
  const auto lists = prompts("[[1],[2,3]]");
  ASSERT_EQ(lists->prompts.size(), 2U);
  EXPECT_EQ(std::get<std::vector<TokenId>>(lists->prompts[1]), (std::vector<TokenId>{2, 3}));
  EXPECT_EQ(field_of(parse_completion_request("{}")), "prompt");
  EXPECT_EQ(field_of(prompts("[]")), "prompt");
  EXPECT_EQ(field_of(prompts("5")), "prompt");
  EXPECT_EQ(field_of(prompts("[1,\"a\"]")), "prompt[1]");
  EXPECT_EQ(field_of(prompts("[1,-2]")), "prompt[1]");
  EXPECT_EQ(field_of(prompts("[1,2.5]")), "prompt[1]");
  EXPECT_EQ(field_of(prompts("[1,3000000000]")), "prompt[1]");
  EXPECT_EQ(field_of(prompts("[[]]")), "prompt[0]");
  EXPECT_EQ(field_of(prompts("[\"a\",{}]")), "prompt[1]");
  std::string many = "[\"a\"";
  for (std::size_t i = 0; i < kMaxPrompts; ++i) many += ",\"a\"";
  EXPECT_EQ(field_of(prompts(many + "]")), "prompt");
}

TEST(CompletionRequest, ReadsItsOwnFields) {
  const auto plain = completion("");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->common.sampling.max_tokens, kDefaultCompletionTokens);
  const auto request = completion(R"("echo":true,"logprobs":3,"max_tokens":0,"best_of":1)");
  ASSERT_TRUE(request.ok()) << request.error().message();
  EXPECT_TRUE(request->echo);
  EXPECT_TRUE(request->common.sampling.logprobs);
  EXPECT_EQ(request->common.sampling.top_logprobs, 3);
  EXPECT_EQ(request->common.sampling.max_tokens, 0);
  EXPECT_EQ(field_of(completion(R"("max_tokens":0)")), "max_tokens");
  EXPECT_EQ(field_of(completion(R"("max_tokens":-1,"echo":true)")), "max_tokens");
  EXPECT_EQ(field_of(completion(R"("logprobs":true)")), "logprobs");
  EXPECT_EQ(field_of(completion(R"("logprobs":21)")), "logprobs");
  EXPECT_EQ(field_of(completion(R"("suffix":"x")")), "suffix");
  EXPECT_EQ(field_of(completion(R"("best_of":2)")), "best_of");
  EXPECT_EQ(field_of(completion(R"("best_of":1,"n":2)")), "best_of");
  EXPECT_EQ(field_of(completion(R"("echo":"yes")")), "echo");
}

}  // namespace
}  // namespace shoal::wire
