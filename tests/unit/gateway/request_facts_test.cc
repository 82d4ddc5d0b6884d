#include "gateway/request_facts.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gateway/event_splitter.h"
#include "gateway/trace_context.h"

namespace shoal::gateway {
namespace {

TEST(RequestFacts, ReadsWhatDecisionsNeed) {
  const auto chat = read_facts(
      R"({"model":"m","stream":true,"n":3,"max_tokens":7,"max_completion_tokens":9,"messages":[)"
      R"({"role":"user","content":"four"},{"role":"user","content":[{"type":"text","text":"eight---"}]}]})");
  ASSERT_TRUE(chat.ok()) << chat.error().message();
  EXPECT_EQ(chat->model, "m");
  EXPECT_TRUE(chat->stream);
  EXPECT_FALSE(chat->has_seed);
  EXPECT_EQ(chat->choices, 3);
  EXPECT_EQ(chat->size.text.bytes, 12);
  EXPECT_EQ(chat->size.max_tokens, 9);
  const auto lists = read_facts(R"({"prompt":[[1,2,3],[4]],"n":2,"seed":0})");
  EXPECT_EQ(lists->prompts, 2);
  EXPECT_EQ(lists->choices, 4);
  EXPECT_EQ(lists->size.token_ids, 4);
  EXPECT_TRUE(lists->has_seed);
  EXPECT_EQ(read_facts(R"({"prompt":[1,2,3]})")->prompts, 1);
  EXPECT_EQ(read_facts(R"({"prompt":["ab","c"]})")->size.text.bytes, 3);
}

TEST(RequestFacts, RefusesWhatItCannotRead) {
  for (const char* body : {"", "[1]", "{", R"({"model":1})", R"({"stream":"yes"})", R"({"shoal_resume":[]})",
                           R"({"model":"a","model":"b"})", R"({"model":"a","mod\u0065l":"a"})"})
    EXPECT_EQ(read_facts(body).status().code(), ErrorCode::kInvalidArgument) << body;
}

TEST(RequestFacts, EditsTouchNothingElse) {
  EXPECT_EQ(with_fields(R"( {"a" : 1})", R"("seed":5)"), R"( {"seed":5,"a" : 1})");
  EXPECT_EQ(with_fields("{ }", R"("seed":5)"), R"({"seed":5 })");
  EXPECT_EQ(with_fields(R"({"a":1})", ""), R"({"a":1})");
  EXPECT_EQ(with_text_replaced(R"({"x":{"model":"no"}, "y":["model","no"], "model" : "o\"ld","z":"model"})",
                               "model", "n\"ew"),
            R"({"x":{"model":"no"}, "y":["model","no"], "model" : "n\"ew","z":"model"})");
  EXPECT_EQ(with_text_replaced(R"({"model":7})", "model", "new"), R"({"model":7})");
}

TEST(EventSplitter, GivesWholeEventsHoweverTheyAreCut) {
  const std::string stream = "data: a\n\n: note\ndata: b\r\n\r\ndata: c\ndata: d\n\n";
  const std::vector<std::string> events{"data: a\n\n", ": note\ndata: b\r\n\r\n", "data: c\ndata: d\n\n"};
  for (std::size_t cut = 1; cut <= stream.size(); ++cut) {
    EventSplitter splitter;
    std::vector<std::string> seen;
    for (std::size_t at = 0; at < stream.size(); at += cut)
      ASSERT_TRUE(splitter.push(std::string_view(stream).substr(at, cut), [&](std::string_view event) {
        seen.emplace_back(event);
        return true;
      }));
    EXPECT_EQ(seen, events) << cut;
  }
}

TEST(EventSplitter, GivesWhatHadNoEndOnce) {
  EventSplitter splitter;
  ASSERT_TRUE(splitter.push("data: a\n\ndata: b\n", [](std::string_view) { return true; }));
  EXPECT_EQ(splitter.rest(), "data: b\n");
  EXPECT_EQ(splitter.rest(), "");
}

TEST(EventSplitter, AnEventWithoutAnEndIsBounded) {
  EventSplitter splitter;
  const std::string block(1 << 20, 'x');
  const auto take = [](std::string_view) { return true; };
  int accepted = 0;
  while (accepted < 100 && splitter.push(block, take)) ++accepted;
  EXPECT_EQ(accepted, 16);
}

TEST(TraceContext, GoesOnWithTheClientsTraceUnderAnIdOfItsOwn) {
  const TraceContext on = TraceContext::continued("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  EXPECT_EQ(on.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_NE(on.parent_id, "00f067aa0ba902b7");
  EXPECT_EQ(on.flags, "01");
  for (const char* wrong : {"", "00-xyz", "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
                            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more"}) {
    const TraceContext fresh = TraceContext::continued(wrong);
    EXPECT_EQ(fresh.trace_id.size(), 32U) << wrong;
    EXPECT_NE(fresh.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
    EXPECT_EQ(fresh.traceparent().size(), 55U);
  }
}

}  // namespace
}  // namespace shoal::gateway
