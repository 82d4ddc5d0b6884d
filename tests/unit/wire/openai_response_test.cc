#include "wire/openai_response.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "wire/api_error.h"

namespace shoal::wire {
namespace {

using nlohmann::json;

const AnswerId kAnswer{"chatcmpl-1", 1700000000, "m\"odel"};

// The JSON of each event in an SSE stream, all framing checked.
std::vector<json> events_of(std::string_view text) {
  std::vector<json> events;
  while (!text.empty()) {
    const std::size_t end = text.find("\n\n");
    EXPECT_NE(end, std::string_view::npos);
    EXPECT_TRUE(text.starts_with("data: "));
    if (end == std::string_view::npos) break;
    const std::string_view data = text.substr(6, end - 6);
    EXPECT_EQ(data.find('\n'), std::string_view::npos);
    events.push_back(json::parse(data));
    text.remove_prefix(end + 2);
  }
  return events;
}

TEST(ChatStream, SaysRoleContentFinishUsage) {
  const ChatStream stream(kAnswer, true);
  std::string out;
  stream.role(1, out);
  stream.content(1, "he\nllo", nullptr, out);
  stream.finish(1, FinishReason::kStop, "END", out);
  stream.usage({10, 5, 8}, out);
  const auto events = events_of(out);
  ASSERT_EQ(events.size(), 4U);
  for (const json& event : events) {
    EXPECT_EQ(event["id"], "chatcmpl-1");
    EXPECT_EQ(event["object"], "chat.completion.chunk");
    EXPECT_EQ(event["created"], 1700000000);
    EXPECT_EQ(event["model"], "m\"odel");
  }
  EXPECT_EQ(
      events[0]["choices"],
      json::parse(
          R"([{"index":1,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}])"));
  EXPECT_EQ(events[1]["choices"][0]["delta"], json::parse(R"({"content":"he\nllo"})"));
  EXPECT_EQ(events[2]["choices"][0]["delta"], json::object());
  EXPECT_EQ(events[2]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(events[2]["choices"][0]["matched_stop"], "END");
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(events[i].contains("usage") && events[i]["usage"].is_null());
  EXPECT_EQ(events[3]["choices"], json::array());
  EXPECT_EQ(events[3]["usage"], json::parse(R"({"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,
                                                "prompt_tokens_details":{"cached_tokens":8}})"));
}

TEST(ChatStream, SaysNothingOfUsageUnasked) {
  const ChatStream stream(kAnswer, false);
  std::string out;
  stream.content(0, "x", nullptr, out);
  stream.usage({1, 1, 0}, out);
  const auto events = events_of(out);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_FALSE(events[0].contains("usage"));
}

TEST(ChatStream, GivesLogprobsWithBytes) {
  const ChatStream stream(kAnswer, false);
  std::string out;
  const std::vector<TokenLogprobs> tokens{{"\xf0\x9f", -0.5, {{"\xf0\x9f", -0.5}, {"a", -INFINITY}}}};
  stream.content(0, "", &tokens, out);
  const json logprobs = events_of(out)[0]["choices"][0]["logprobs"];
  const json& token = logprobs["content"][0];
  EXPECT_EQ(token["token"], "\xef\xbf\xbd");
  EXPECT_EQ(token["bytes"], json::parse("[240,159]"));
  EXPECT_EQ(token["logprob"], -0.5);
  EXPECT_EQ(token["top_logprobs"][1]["token"], "a");
  EXPECT_EQ(token["top_logprobs"][1]["logprob"], -9999.0);
}

TEST(ChatCompletion, IsOneObject) {
  FinishedChoice first{"bad \xff text", FinishReason::kLength, {}, false, ""};
  FinishedChoice second{"b", FinishReason::kStop, {{"b", -1.0, {}}}, true, "stop"};
  const json answer = json::parse(chat_completion(kAnswer, {first, second}, {3, 2, 0}));
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["choices"].size(), 2U);
  EXPECT_EQ(answer["choices"][0]["message"],
            json::parse("{\"role\":\"assistant\",\"content\":\"bad \xef\xbf\xbd text\",\"refusal\":null}"));
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_TRUE(answer["choices"][0]["logprobs"].is_null());
  EXPECT_FALSE(answer["choices"][0].contains("matched_stop"));
  EXPECT_EQ(answer["choices"][1]["index"], 1);
  EXPECT_EQ(answer["choices"][1]["logprobs"]["content"][0]["logprob"], -1.0);
  EXPECT_EQ(answer["usage"]["total_tokens"], 5);
}

TEST(TextCompletion, GivesLogprobsInTheOlderFormat) {
  const std::vector<TokenLogprobs> tokens{
      {"ab", std::nullopt, {}}, {"é", -1.0, {{"x", -0.5}, {"é", -1.0}}}, {"\xf0\x9f", -2.0, {{"q", -0.1}}}};
  const json answer =
      json::parse(text_completion(kAnswer, {{"abé", FinishReason::kStop, tokens, true, ""}}, {1, 3, 0}));
  EXPECT_EQ(answer["object"], "text_completion");
  const json& logprobs = answer["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], json::parse(R"(["ab","é","bytes:\\xf0\\x9f"])"));
  EXPECT_EQ(logprobs["token_logprobs"], json::parse("[null,-1.0,-2.0]"));
  EXPECT_EQ(logprobs["text_offset"], json::parse("[0,2,3]"));
  EXPECT_EQ(logprobs["top_logprobs"],
            json::parse(R"([null,{"x":-0.5,"é":-1.0},{"q":-0.1,"bytes:\\xf0\\x9f":-2.0}])"));
}

TEST(TextCompletion, TokensThatTheTextDoesNotShowTakeNoOffset) {
  std::vector<TokenLogprobs> tokens{{"<s>", std::nullopt, {}}, {" Once", -1.0, {}}, {" upon", -1.0, {}}};
  tokens[0].shown_characters = 0;
  tokens[1].shown_characters = 4;
  const json answer =
      json::parse(text_completion(kAnswer, {{"Once upon", FinishReason::kStop, tokens, true, ""}}, {1, 2, 0}));
  EXPECT_EQ(answer["choices"][0]["logprobs"]["text_offset"], json::parse("[0,0,4]"));
}

TEST(CompletionStream, MovesTheOffsetOn) {
  const CompletionStream stream(kAnswer, true);
  std::string out;
  int offset = 4;
  const std::vector<TokenLogprobs> tokens{{"äb", -1.0, {}}};
  stream.text(0, "äb", &tokens, offset, out);
  stream.text(0, "äb", &tokens, offset, out);
  stream.finish(0, FinishReason::kAbort, "", out);
  stream.usage({1, 2, 0}, out);
  const auto events = events_of(out);
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[0]["choices"][0]["text"], "äb");
  EXPECT_EQ(events[0]["choices"][0]["logprobs"]["text_offset"], json::parse("[4]"));
  EXPECT_EQ(events[1]["choices"][0]["logprobs"]["text_offset"], json::parse("[6]"));
  EXPECT_TRUE(events[1]["choices"][0]["logprobs"]["top_logprobs"].is_null());
  EXPECT_EQ(events[2]["choices"][0]["finish_reason"], "abort");
  EXPECT_EQ(events[3]["usage"]["completion_tokens"], 2);
}

TEST(ApiError, MapsEveryCode) {
  const auto reply = [](ErrorCode code) { return error_reply(Status(code, "why", "n")); };
  EXPECT_EQ(reply(ErrorCode::kInvalidArgument).status, 400);
  EXPECT_EQ(reply(ErrorCode::kTooLong).status, 400);
  EXPECT_EQ(reply(ErrorCode::kNotFound).status, 404);
  EXPECT_EQ(reply(ErrorCode::kExhausted).status, 429);
  EXPECT_EQ(reply(ErrorCode::kUnavailable).status, 503);
  EXPECT_EQ(reply(ErrorCode::kDeadline).status, 504);
  EXPECT_EQ(reply(ErrorCode::kInternal).status, 500);
  EXPECT_EQ(reply(ErrorCode::kCorrupt).status, 500);
  EXPECT_EQ(reply(ErrorCode::kExhausted).headers, (HeaderList{{"Retry-After", "1"}}));
  const json body = json::parse(reply(ErrorCode::kTooLong).body);
  EXPECT_EQ(body, json::parse(R"({"error":{"message":"why","type":"invalid_request_error","param":"n",
                                  "code":"context_length_exceeded"}})"));
  EXPECT_EQ(json::parse(reply(ErrorCode::kNotFound).body)["error"]["code"], "model_not_found");
  EXPECT_EQ(unauthorized_reply().status, 401);
  EXPECT_EQ(json::parse(unauthorized_reply().body)["error"]["code"], "invalid_api_key");
  EXPECT_TRUE(json::accept(error_body("broken \xff", "t")));
  EXPECT_TRUE(json::parse(error_body("m", "t"))["error"]["param"].is_null());
}

TEST(Sse, EndsAFailedStreamWithAnErrorAndDone) {
  std::string out;
  append_sse_error(Status(ErrorCode::kUnavailable, "the worker stops"), out);
  EXPECT_TRUE(out.ends_with("\n\ndata: [DONE]\n\n"));
  EXPECT_EQ(json::parse(out.substr(6, out.find("\n\n") - 6))["error"]["message"], "the worker stops");
}

TEST(ModelList, HoldsCards) {
  const json list = json::parse(model_list({{"m", 5, "m.gguf", 8192}}));
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(
      list["data"][0],
      json::parse(R"({"id":"m","object":"model","created":5,"owned_by":"shoal","root":"m.gguf","parent":null,
                            "max_model_len":8192})"));
}

// The reason for JsonWriter: what a token's chunk costs this way and through a tree of values.
TEST(ChatStream, BuildsAChunkFasterThanATree) {
  const ChatStream stream(kAnswer, false);
  constexpr int kRounds = 20'000;
  using Clock = std::chrono::steady_clock;
  std::size_t bytes = 0;
  const auto begin = Clock::now();
  for (int i = 0; i < kRounds; ++i) {
    std::string out;
    stream.content(0, " token", nullptr, out);
    bytes += out.size();
  }
  const auto middle = Clock::now();
  std::size_t tree_bytes = 0;
  for (int i = 0; i < kRounds; ++i) {
    nlohmann::ordered_json chunk;
    chunk["id"] = kAnswer.id;
    chunk["object"] = "chat.completion.chunk";
    chunk["created"] = kAnswer.created;
    chunk["model"] = kAnswer.model;
    chunk["choices"] = {{{"index", 0},
                         {"delta", {{"content", " token"}}},
                         {"logprobs", nullptr},
                         {"finish_reason", nullptr}}};
    tree_bytes += chunk.dump().size() + 8;  // "data: " and the blank line
  }
  const auto end = Clock::now();
  EXPECT_EQ(bytes, tree_bytes);
  const double direct = std::chrono::duration<double, std::micro>(middle - begin).count() / kRounds;
  const double tree = std::chrono::duration<double, std::micro>(end - middle).count() / kRounds;
  EXPECT_LT(direct, tree);
  RecordProperty("direct_us", std::to_string(direct));
  RecordProperty("tree_us", std::to_string(tree));
  printf("a chunk: %.2f us written straight, %.2f us through nlohmann::ordered_json\n", direct, tree);
}

}  // namespace
}  // namespace shoal::wire
