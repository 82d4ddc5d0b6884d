#include "wire/http_client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "wire/http_server.h"
#include "wire/openai_response.h"
#include "wire/raw_client.h"
#include "wire/sse_reader.h"

namespace shoal::wire {
namespace {

using namespace std::chrono_literals;

class HttpClientTest : public testing::Test {
 protected:
  ResponsePtr held;  // written by the server's thread, so it goes after that has been joined
  HttpServer server;
  HttpClient client;
  std::uint16_t port = 0;

  void start() {
    server.route("POST", "/echo", [](HttpRequest request, ResponsePtr response) {
      response->respond(request.body == "fail" ? 400 : 200, "text/plain", request.body,
                        {{"X-Seen", std::string(request.header("x-name").value_or("-"))}});
    });
    server.route("GET", "/error", [](HttpRequest, ResponsePtr response) {
      response->respond(429, "application/json", R"({"error":{"message":"too busy"}})");
    });
    server.route("GET", "/hang", [this](HttpRequest, ResponsePtr response) { held = std::move(response); });
    server.route("GET", "/stream", [](HttpRequest, ResponsePtr response) {
      response->begin_stream(200, kSseContentType);
      for (int i = 0; i < 100; ++i) {
        std::string event;
        append_sse_event(std::to_string(i), event);
        response->write(event);
      }
      response->write(kSseDone);
      response->end();
    });
    port = *server.listen("127.0.0.1", 0);
  }

  HttpCall call(std::string path, std::string method = "GET", std::string body = {}) const {
    HttpCall call;
    call.url = *Url::parse("http://127.0.0.1:" + std::to_string(port) + path);
    call.method = std::move(method);
    call.body = std::move(body);
    return call;
  }
};

TEST_F(HttpClientTest, SendsAndReceivesWholeAnswers) {
  start();
  HttpCall echo = call("/echo", "POST", std::string(300'000, 'x'));
  echo.headers = {{"X-Name", "n"}};
  const auto answer = client.send(echo);
  ASSERT_TRUE(answer.ok()) << answer.error().message();
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, echo.body);
  EXPECT_NE(std::find(answer->headers.begin(), answer->headers.end(),
                      std::pair<std::string, std::string>("x-seen", "n")),
            answer->headers.end());
  EXPECT_EQ(client.send(call("/echo", "POST", "fail"))->status, 400);
  EXPECT_FALSE(client.send(echo, 1000).ok()) << "an answer longer than asked for is refused";
}

TEST_F(HttpClientTest, StreamsEventsAndCutsWhenTold) {
  start();
  std::vector<std::string> events;
  SseReader reader([&](std::string_view data) { events.emplace_back(data); });
  ASSERT_TRUE(
      client.stream(call("/stream"), [&](std::string_view bytes) { return reader.push(bytes); }).ok());
  ASSERT_EQ(events.size(), 101U);
  EXPECT_EQ(events[99], "99");
  EXPECT_EQ(events[100], "[DONE]");
  EXPECT_EQ(client.stream(call("/stream"), [](std::string_view) { return false; }).code(),
            ErrorCode::kCancelled);
  const Status refused = client.stream(call("/error"), [](std::string_view) { return true; });
  EXPECT_TRUE(refused.message().ends_with("answered 429: too busy")) << refused.message();
}

TEST_F(HttpClientTest, HandsOverEachPieceBeforeTheNextIsSent) {
  std::promise<ResponsePtr> begun;
  server.route("GET", "/paced", [&begun](HttpRequest, ResponsePtr response) {
    response->begin_stream(200, kSseContentType);
    begun.set_value(std::move(response));
  });
  start();
  std::atomic<int> received{0};
  std::atomic<bool> ended{false};
  client.start(call("/paced"), {nullptr,
                                [&](std::string_view bytes) {
                                  received += static_cast<int>(bytes.size());
                                  return true;
                                },
                                [&](const Status&) { ended = true; }});
  const ResponsePtr writer = begun.get_future().get();
  for (int i = 1; i <= 5; ++i) {
    writer->write("data: x\n\n");
    EXPECT_TRUE(eventually([&] { return received == 9 * i; })) << i;
  }
  writer->end();
  EXPECT_TRUE(eventually([&] { return ended.load(); }));
}

TEST_F(HttpClientTest, EveryWaitEnds) {
  start();
  HttpCall hang = call("/hang");
  hang.idle_timeout = 100ms;
  EXPECT_EQ(client.send(hang).status().code(), ErrorCode::kDeadline);
  hang.idle_timeout = 60s;
  hang.deadline = 100ms;
  EXPECT_EQ(client.send(hang).status().code(), ErrorCode::kDeadline);
  HttpServer gone;
  HttpCall nobody = call("/");
  nobody.url.port = *gone.listen("127.0.0.1", 0);
  gone.shutdown(0ms);
  EXPECT_EQ(client.send(nobody).status().code(), ErrorCode::kUnavailable);
}

TEST_F(HttpClientTest, RunsManyCallsAtOnce) {
  start();
  std::atomic<int> ended{0};
  std::atomic<int> bytes{0};
  for (int i = 0; i < 200; ++i) {
    client.start(call("/stream"), {nullptr,
                                   [&](std::string_view data) {
                                     bytes += static_cast<int>(data.size());
                                     return true;
                                   },
                                   [&](const Status& status) {
                                     EXPECT_TRUE(status.ok()) << status.message();
                                     ++ended;
                                   }});
  }
  EXPECT_TRUE(eventually([&] { return ended == 200; }));
  // 10 events of 9 bytes, 90 of 10, and [DONE].
  EXPECT_EQ(bytes, 200 * (10 * 9 + 90 * 10 + 14));
}

TEST_F(HttpClientTest, DestructionDropsRunningCalls) {
  start();
  std::atomic<bool> ended{false};
  {
    HttpClient brief;
    brief.start(call("/hang"), {nullptr, nullptr, [&](const Status&) { ended = true; }});
    EXPECT_TRUE(eventually([&] { return server.running_requests() == 1; }));
  }
  EXPECT_FALSE(ended);
  EXPECT_TRUE(eventually([&] { return server.running_requests() == 0; }));
}

TEST(Url, ParsesWhatPeopleWrite) {
  EXPECT_EQ(Url::parse("http://h:81/p?q")->path, "/p?q");
  EXPECT_EQ(Url::parse("http://h:81/p?q")->port, 81);
  EXPECT_EQ(Url::parse("h")->port, 80);
  EXPECT_FALSE(Url::parse("h")->tls);
  EXPECT_EQ(Url::parse("https://h/p")->port, 443);
  EXPECT_TRUE(Url::parse("https://h:8443")->tls);
  EXPECT_EQ(Url::parse("https://h:8443")->port, 8443);
  EXPECT_EQ(Url::parse("http://[::1]:9")->host, "::1");
  EXPECT_EQ(Url::parse("http://[::1]:9")->authority(), "[::1]:9");
  for (const std::string_view wrong :
       {"", "http://", "https://", "ftp://h", "h:x", "h:0", "h:70000", "[::1", "[::1]9", "h/a b"}) {
    EXPECT_FALSE(Url::parse(wrong).ok()) << wrong;
  }
}

TEST(SseReader, GivesTheSameEventsHoweverTheBytesAreCut) {
  const std::string text =
      "data: one\r\n\r\n: comment\nevent: x\ndata:two\ndata: lines\n\n\n\ndata: \n\nunfinished";
  const std::vector<std::string> expected{"one", "two\nlines", ""};
  for (std::size_t cut = 1; cut <= text.size(); ++cut) {
    std::vector<std::string> events;
    SseReader reader([&](std::string_view data) { events.emplace_back(data); });
    for (std::size_t at = 0; at < text.size(); at += cut)
      EXPECT_TRUE(reader.push(std::string_view(text).substr(at, cut)));
    EXPECT_EQ(events, expected) << cut;
  }
}

TEST(SseReader, RefusesAnEndlessEvent) {
  SseReader reader([](std::string_view) { FAIL(); });
  const std::string piece(1024 * 1024, 'x');
  bool going = true;
  for (int i = 0; i < 20 && going; ++i) going = reader.push(piece);
  EXPECT_FALSE(going);
}

}  // namespace
}  // namespace shoal::wire
