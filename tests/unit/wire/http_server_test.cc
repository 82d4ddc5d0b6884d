#include "wire/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "wire/raw_client.h"

namespace shoal::wire {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kGet = "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n";

// A server with three handlers: /hello, /echo (POST) and /stream, whose writer the test takes over.
class HttpServerTest : public testing::Test {
 protected:
  HttpServerOptions options;
  std::unique_ptr<HttpServer> server;
  std::uint16_t port = 0;

  std::mutex mutex;
  ResponsePtr stream;
  std::atomic<int> disconnects{0};

  void start() {
    server = std::make_unique<HttpServer>(options);
    server->route("GET", "/hello",
                  [](HttpRequest, ResponsePtr response) { response->respond(200, "text/plain", "hello"); });
    server->route("POST", "/echo", [](HttpRequest request, ResponsePtr response) {
      response->respond(200, "text/plain", request.body);
    });
    server->route("GET", "/stream", [this](HttpRequest, ResponsePtr response) {
      response->on_disconnect([this] { ++disconnects; });
      response->begin_stream(200, "text/event-stream");
      std::scoped_lock lock(mutex);
      stream = std::move(response);
    });
    const auto bound = server->listen("127.0.0.1", 0);
    ASSERT_TRUE(bound.ok()) << bound.error().message();
    port = *bound;
  }

  ResponsePtr take_stream() {
    EXPECT_TRUE(eventually([this] {
      std::scoped_lock lock(mutex);
      return stream != nullptr;
    }));
    std::scoped_lock lock(mutex);
    return std::exchange(stream, nullptr);
  }

  std::string ask(std::string_view bytes) {
    RawClient client(port);
    client.send(bytes);
    return client.read_to_close();
  }

  // The server has let go of everything and still serves.
  void expect_clean() {
    EXPECT_TRUE(eventually([this] { return server->open_connections() == 0; })) << server->open_connections();
    EXPECT_EQ(server->running_requests(), 0);
    EXPECT_NE(ask("GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").find("hello"),
              std::string::npos);
  }
};

std::size_t count(const std::string& text, std::string_view what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) ++n;
  return n;
}

TEST_F(HttpServerTest, AnswersAndKeepsTheConnection) {
  start();
  RawClient client(port);
  client.send(kGet);
  const std::string& got = client.read_until("hello");
  EXPECT_TRUE(got.starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_NE(got.find("Connection: keep-alive"), std::string::npos);
  EXPECT_NE(got.find("Content-Length: 5\r\n"), std::string::npos);
  client.send(kGet);
  client.read_until("hello", got.find("hello") + 5);
  EXPECT_EQ(count(got, "200 OK"), 2U);
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  start();
  std::string bytes;
  for (int i = 0; i < 50; ++i) {
    const std::string body = "number" + std::to_string(i) + ";";
    bytes += "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
             body;
  }
  RawClient client(port);
  client.send(bytes);
  const std::string& got = client.read_until("number49;");
  EXPECT_EQ(count(got, "200 OK"), 50U);
  std::size_t last = 0;
  for (int i = 0; i < 50; ++i) {
    const std::size_t at = got.find("number" + std::to_string(i) + ";");
    ASSERT_NE(at, std::string::npos) << i;
    EXPECT_GE(at, last);
    last = at;
  }
}

TEST_F(HttpServerTest, ServesMoreThanThePipelineBufferWhileAStreamRuns) {
  start();
  RawClient client(port);
  client.send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  const ResponsePtr writer = take_stream();
  std::string bytes;
  const std::string body(30'000, 'b');
  for (int i = 0; i < 5; ++i) bytes += "POST /echo HTTP/1.1\r\nContent-Length: 30000\r\n\r\n" + body;
  client.send(bytes + "POST /echo HTTP/1.1\r\nContent-Length: 4\r\n\r\nlast");
  writer->write("data: x\n\n");
  writer->end();
  const std::string& got = client.read_until("last");
  EXPECT_EQ(count(got, "200 OK"), 7U);
}

TEST_F(HttpServerTest, StreamsChunksAsTheyAreWritten) {
  start();
  RawClient client(port);
  client.send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  const ResponsePtr writer = take_stream();
  EXPECT_NE(client.read_until("\r\n\r\n").find("Transfer-Encoding: chunked"), std::string::npos);
  EXPECT_TRUE(writer->write("data: a\n\n"));
  EXPECT_NE(client.read_until("9\r\ndata: a\n\n\r\n").find("9\r\ndata: a\n\n\r\n"), std::string::npos);
  EXPECT_TRUE(writer->write("data: b\n\n"));
  writer->end();
  EXPECT_FALSE(writer->write("after the end"));
  EXPECT_TRUE(client.read_until("0\r\n\r\n").ends_with("9\r\ndata: b\n\n\r\n0\r\n\r\n"));
  client.send(kGet);
  EXPECT_NE(client.read_until("hello").find("hello"), std::string::npos);
  EXPECT_EQ(disconnects, 0);
}

TEST_F(HttpServerTest, Http10GetsAPlainStreamUntilClose) {
  start();
  RawClient client(port);
  client.send("GET /stream HTTP/1.0\r\n\r\n");
  const ResponsePtr writer = take_stream();
  writer->write("data: a\n\n");
  writer->end();
  const std::string got = client.read_to_close();
  EXPECT_TRUE(got.ends_with("\r\n\r\ndata: a\n\n")) << got;
  EXPECT_EQ(got.find("chunked"), std::string::npos);
  client.close();
  expect_clean();
}

TEST_F(HttpServerTest, NoticesAClientThatLeavesWhileNothingIsWritten) {
  start();
  for (const int way : {0, 1, 2}) {
    const int before = disconnects;
    RawClient client(port);
    client.send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    const ResponsePtr writer = take_stream();
    client.read_until("\r\n\r\n");
    if (way == 0) client.close();
    if (way == 1) client.reset();
    if (way == 2) client.close_sending_side();
    EXPECT_TRUE(eventually([&] { return disconnects == before + 1; })) << "way " << way;
    EXPECT_TRUE(writer->disconnected());
    EXPECT_FALSE(writer->write("x"));
    bool called = false;
    writer->on_disconnect([&called] { called = true; });
    EXPECT_TRUE(called) << "a late callback must not be lost";
  }
  expect_clean();
}

TEST_F(HttpServerTest, NoticesAClientThatLeavesBeforeTheAnswer) {
  std::atomic<int> left{0};
  start();
  server = std::make_unique<HttpServer>(options);
  ResponsePtr held;
  server->route("GET", "/slow", [&](HttpRequest, ResponsePtr response) {
    response->on_disconnect([&left] { ++left; });
    std::scoped_lock lock(mutex);
    held = std::move(response);
  });
  port = *server->listen("127.0.0.1", 0);
  RawClient client(port);
  client.send("GET /slow HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(eventually([&] {
    std::scoped_lock lock(mutex);
    return held != nullptr;
  }));
  client.close();
  EXPECT_TRUE(eventually([&] { return left == 1; }));
  EXPECT_TRUE(eventually([&] { return server->open_connections() == 0; }));
  held->respond(200, "text/plain", "too late");
}

TEST_F(HttpServerTest, CutsAReaderThatNeverReads) {
  options.max_output_backlog = 64 * 1024;
  start();
  RawClient client(port, 4096);
  client.send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  const ResponsePtr writer = take_stream();
  const std::string chunk(8192, 'x');
  // The kernel's buffers take some; the backlog takes 64 KiB more.
  bool cut = false;
  for (int i = 0; i < 100'000 && !cut; ++i) cut = !writer->write(chunk);
  EXPECT_TRUE(cut);
  EXPECT_TRUE(eventually([&] { return disconnects == 1; }));
  expect_clean();
}

TEST_F(HttpServerTest, CutsAReaderThatStopsAtTheWriteDeadline) {
  options.write_deadline = 100ms;
  options.max_output_backlog = 64 * 1024 * 1024;
  start();
  RawClient client(port, 4096);
  client.send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  const ResponsePtr writer = take_stream();
  const std::string chunk(8192, 'x');
  EXPECT_TRUE(eventually([&] {
    if (disconnects == 0) writer->write(chunk);
    return disconnects == 1;
  }));
  expect_clean();
}

// The deadline is for progress: a long answer does not buy a client that takes nothing of it more time.
TEST_F(HttpServerTest, CutsAReaderThatStopsInsideALongAnswer) {
  options.write_deadline = 100ms;
  options.max_output_backlog = 64 * 1024 * 1024;
  start();
  RawClient client(port, 4096);
  client.send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  const ResponsePtr writer = take_stream();
  EXPECT_TRUE(writer->write(std::string(48 * 1024 * 1024, 'x')));
  EXPECT_TRUE(eventually([&] { return disconnects == 1; }));
  expect_clean();
}

// A writer past its bound ends the connection at once, although a write that the client never reads is under
// way.
TEST_F(HttpServerTest, AnOverrunEndsAWriteUnderWay) {
  options.write_deadline = 3600s;
  options.max_output_backlog = 16 * 1024 * 1024;
  start();
  RawClient client(port, 4096);
  client.send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  const ResponsePtr writer = take_stream();
  EXPECT_TRUE(writer->write(std::string(15 * 1024 * 1024, 'x')));
  // The kernel's buffers may have taken several MiB of the first.
  EXPECT_FALSE(writer->write(std::string(15 * 1024 * 1024, 'x')));
  EXPECT_TRUE(eventually([&] { return disconnects == 1; }));
  expect_clean();
}

TEST_F(HttpServerTest, RefusesWhatIsNotHttp) {
  start();
  for (const std::string_view bytes :
       {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", "GET\r\n\r\n", "GET /hello HTTP/9.9\r\n\r\n",
        "GET /hello HTTP/1.1\r\nbroken header\r\n\r\n", "G@T /hello HTTP/1.1\r\n\r\n",
        "POST /echo HTTP/1.1\r\nContent-Length: banana\r\n\r\n",
        "POST /echo HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        "POST /echo HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "POST /echo HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n"}) {
    const std::string got = ask(bytes);
    EXPECT_TRUE(got.starts_with("HTTP/1.1 400 Bad Request\r\n")) << bytes << "\n" << got;
    EXPECT_NE(got.find("\"invalid_request_error\""), std::string::npos);
    EXPECT_NE(got.find("Connection: close"), std::string::npos);
  }
  expect_clean();
}

TEST_F(HttpServerTest, BoundsHeaders) {
  options.max_header_bytes = 2048;
  start();
  EXPECT_TRUE(
      ask("GET /hello HTTP/1.1\r\nX: " + std::string(5000, 'a') + "\r\n\r\n").starts_with("HTTP/1.1 431 "));
  EXPECT_TRUE(ask("GET /" + std::string(500'000, 'a')).starts_with("HTTP/1.1 431 "));
  expect_clean();
}

TEST_F(HttpServerTest, BoundsBodiesPromisedAndChunked) {
  options.max_body_bytes = 1000;
  start();
  EXPECT_TRUE(ask("POST /echo HTTP/1.1\r\nContent-Length: 1001\r\n\r\n").starts_with("HTTP/1.1 413 "));
  EXPECT_TRUE(ask("POST /echo HTTP/1.1\r\nContent-Length: 1001\r\n\r\n" + std::string(1001, 'b'))
                  .starts_with("HTTP/1.1 413 "));
  EXPECT_TRUE(ask("POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" +
                  std::string(2000, 'b') + "\r\n")
                  .starts_with("HTTP/1.1 413 "));
  EXPECT_TRUE(ask("POST /echo HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n")
                  .starts_with("HTTP/1.1 4"));
  expect_clean();
}

TEST_F(HttpServerTest, BoundsAllBodiesTogether) {
  options.max_all_bodies_bytes = 1000;
  start();
  RawClient first(port);
  first.send("POST /echo HTTP/1.1\r\nContent-Length: 900\r\n\r\n" + std::string(899, 'a'));
  RawClient second(port);
  second.send("POST /echo HTTP/1.1\r\nContent-Length: 900\r\n\r\n" + std::string(899, 'b'));
  // Whichever came second is refused while the other is still incomplete.
  EXPECT_TRUE(eventually([&] { return first.readable() || second.readable(); }));
  first.send("a");
  second.send("b");
  const std::string both = first.read_until("\r\n\r\n") + second.read_until("\r\n\r\n");
  EXPECT_EQ(count(both, "HTTP/1.1 200 "), 1U) << both;
  EXPECT_EQ(count(both, "HTTP/1.1 503 "), 1U) << both;
  RawClient third(port);
  third.send("POST /echo HTTP/1.1\r\nContent-Length: 900\r\nConnection: close\r\n\r\n" +
             std::string(900, 'c'));
  EXPECT_TRUE(third.read_to_close().starts_with("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, ClosesASlowHeader) {
  options.header_deadline = 100ms;
  start();
  RawClient silent(port);
  RawClient half(port);
  half.send("GET /hello HTTP/1.1\r\nX: ");
  EXPECT_EQ(half.read_to_close(), "");
  EXPECT_TRUE(half.closed_by_server());
  EXPECT_EQ(silent.read_to_close(), "");
  EXPECT_TRUE(silent.closed_by_server());
  expect_clean();
}

TEST_F(HttpServerTest, DripFedBytesDoNotMoveTheHeaderDeadline) {
  options.header_deadline = 200ms;
  options.max_header_bytes = 64 * 1024 * 1024;
  start();
  RawClient client(port);
  const auto begin = std::chrono::steady_clock::now();
  client.send("GET /hello HTTP/1.1\r\nX: ");
  EXPECT_TRUE(eventually([&] { return !client.send("a"); }));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
}

TEST_F(HttpServerTest, ClosesASlowBody) {
  options.body_deadline = 100ms;
  start();
  RawClient client(port);
  client.send("POST /echo HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_EQ(client.read_to_close(), "");
  EXPECT_TRUE(client.closed_by_server());
  expect_clean();
}

TEST_F(HttpServerTest, ClosesAnIdleConnection) {
  options.idle_timeout = 100ms;
  start();
  RawClient client(port);
  client.send(kGet);
  client.read_to_close();
  EXPECT_TRUE(client.closed_by_server());
  expect_clean();
}

TEST_F(HttpServerTest, AbandonedBodiesLeaveNothing) {
  start();
  for (int i = 0; i < 20; ++i) {
    RawClient client(port);
    client.send("POST /echo HTTP/1.1\r\nContent-Length: 100000\r\n\r\nabc");
    if (i % 2 == 0) client.reset();
  }
  expect_clean();
}

TEST_F(HttpServerTest, RefusesOneConnectionTooMany) {
  options.max_connections = 2;
  start();
  RawClient a(port);
  RawClient b(port);
  a.send(kGet);
  a.read_until("hello");
  b.send(kGet);
  b.read_until("hello");
  const std::string got = ask(kGet);
  EXPECT_TRUE(got.starts_with("HTTP/1.1 503 ")) << got;
  EXPECT_NE(got.find("Retry-After: 1\r\n"), std::string::npos);
  a.close();
  b.close();
  expect_clean();
}

TEST_F(HttpServerTest, SaysContinueBeforeABody) {
  start();
  RawClient client(port);
  client.send(
      "POST /echo HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 4\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("body");
  EXPECT_TRUE(client.read_to_close().ends_with("body"));
  EXPECT_TRUE(
      ask("POST /echo HTTP/1.1\r\nExpect: a-pony\r\nContent-Length: 4\r\n\r\n").starts_with("HTTP/1.1 417 "));
}

TEST_F(HttpServerTest, HeadHasNoBody) {
  start();
  const std::string got = ask("HEAD /hello HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(got.starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_NE(got.find("Content-Length: 5\r\n"), std::string::npos);
  EXPECT_TRUE(got.ends_with("\r\n\r\n"));
}

TEST_F(HttpServerTest, AnswersPreflightWithWhatThePathTakes) {
  start();
  const std::string got =
      ask("OPTIONS /echo HTTP/1.1\r\nOrigin: http://a\r\nAccess-Control-Request-Headers: authorization\r\n"
          "Connection: close\r\n\r\n");
  EXPECT_TRUE(got.starts_with("HTTP/1.1 204 No Content\r\n")) << got;
  EXPECT_NE(got.find("Access-Control-Allow-Methods: POST, OPTIONS\r\n"), std::string::npos) << got;
  EXPECT_NE(got.find("Access-Control-Allow-Headers: authorization\r\n"), std::string::npos);
  EXPECT_NE(got.find("Access-Control-Allow-Origin: *\r\n"), std::string::npos);
}

TEST_F(HttpServerTest, TellsUnknownPathsFromUnknownMethods) {
  start();
  const std::string lost = ask("GET /nowhere HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(lost.starts_with("HTTP/1.1 404 "));
  EXPECT_NE(lost.find(R"({"error":{"message":"there is no GET /nowhere")"), std::string::npos) << lost;
  const std::string wrong = ask("GET /echo HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(wrong.starts_with("HTTP/1.1 405 "));
  EXPECT_NE(wrong.find("Allow: POST, OPTIONS\r\n"), std::string::npos);
}

TEST_F(HttpServerTest, ADroppedWriterStillAnswers) {
  options.admit = [](const HttpRequest& head) -> std::optional<HttpReply> {
    if (head.path == "/forbidden") return HttpReply{403, "text/plain", "no", {}};
    return std::nullopt;
  };
  server = std::make_unique<HttpServer>(options);
  server->route("GET", "/drop", [](HttpRequest, ResponsePtr) {});
  server->route("GET", "/throw", [](HttpRequest, ResponsePtr) { throw std::runtime_error("secret"); });
  server->route("GET", "/tear", [](HttpRequest, ResponsePtr response) {
    response->begin_stream(200, "text/event-stream");
    response->write("data: half\n\n");
  });
  port = *server->listen("localhost", 0);
  EXPECT_TRUE(ask("GET /drop HTTP/1.1\r\nConnection: close\r\n\r\n").starts_with("HTTP/1.1 500 "));
  const std::string thrown = ask("GET /throw HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(thrown.starts_with("HTTP/1.1 500 "));
  EXPECT_EQ(thrown.find("secret"), std::string::npos);
  EXPECT_EQ(ask("GET /tear HTTP/1.1\r\n\r\n").find("0\r\n\r\n"), std::string::npos)
      << "a torn stream must not look whole";
  // Refused by its head: the body is neither awaited nor read.
  EXPECT_TRUE(
      ask("POST /forbidden HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n").starts_with("HTTP/1.1 403 "));
}

TEST_F(HttpServerTest, KeepsASaneRequestIdAndReplacesAnother) {
  start();
  EXPECT_NE(ask("GET /hello HTTP/1.1\r\nX-Request-Id: abc-1\r\nConnection: close\r\n\r\n")
                .find("X-Request-Id: abc-1\r\n"),
            std::string::npos);
  EXPECT_NE(
      ask("GET /hello HTTP/1.1\r\nX-Request-Id: a b\r\nConnection: close\r\n\r\n").find("X-Request-Id: req-"),
      std::string::npos);
}

TEST_F(HttpServerTest, AHeaderValueCannotStartAnotherHeader) {
  server = std::make_unique<HttpServer>(options);
  server->route("GET", "/split", [](HttpRequest, ResponsePtr response) {
    response->respond(200, "text/plain", "ok", {{"X-Name", "a\r\nX-Evil: b"}});
  });
  port = *server->listen("127.0.0.1", 0);
  EXPECT_EQ(ask("GET /split HTTP/1.1\r\nConnection: close\r\n\r\n").find("\r\nX-Evil"), std::string::npos);
}

TEST_F(HttpServerTest, SaysInOneSentenceThatThePortIsTaken) {
  start();
  HttpServer second;
  const auto bound = second.listen("127.0.0.1", port);
  ASSERT_FALSE(bound.ok());
  EXPECT_EQ(bound.error().message(), "cannot listen on 127.0.0.1:" + std::to_string(port) +
                                         ": the port is in use; choose another with --port");
  EXPECT_FALSE(second.listen("no.such.host.invalid", 0).ok());
}

TEST_F(HttpServerTest, DrainLetsARunningStreamFinish) {
  start();
  RawClient idle(port);
  idle.send(kGet);
  idle.read_until("hello");
  RawClient client(port);
  client.send("GET /stream HTTP/1.1\r\n\r\n");
  const ResponsePtr writer = take_stream();
  std::atomic<bool> drained{false};
  std::thread stopper([&] { drained = server->shutdown(20s); });
  idle.read_to_close();
  EXPECT_TRUE(idle.closed_by_server());
  RawClient late(port);
  late.send(kGet);
  EXPECT_EQ(late.read_to_close(), "");
  EXPECT_TRUE(writer->write("data: last\n\n"));
  writer->end();
  EXPECT_TRUE(client.read_to_close().ends_with("data: last\n\n\r\n0\r\n\r\n"));
  client.close();
  stopper.join();
  EXPECT_TRUE(drained);
}

TEST_F(HttpServerTest, DrainCutsWhatDoesNotFinish) {
  start();
  RawClient client(port);
  client.send("GET /stream HTTP/1.1\r\n\r\n");
  const ResponsePtr writer = take_stream();
  EXPECT_FALSE(server->shutdown(50ms));
  EXPECT_EQ(disconnects, 1);
  EXPECT_EQ(server->open_connections(), 0);
  server.reset();
  EXPECT_FALSE(writer->write("the server is gone"));
  writer->end();
}

TEST_F(HttpServerTest, ManyThreadsStreamToManyClientsThatComeAndGo) {
  options.io_threads = 2;
  server = std::make_unique<HttpServer>(options);
  std::atomic<int> running{0};
  server->route("GET", "/tokens", [&running](HttpRequest, ResponsePtr response) {
    auto gone = std::make_shared<std::atomic<bool>>(false);
    response->on_disconnect([gone] { *gone = true; });
    ++running;
    std::thread([response, gone, &running] {
      response->begin_stream(200, "text/event-stream");
      for (int i = 0; i < 200 && !*gone; ++i) {
        if (!response->write("data: " + std::to_string(i) + "\n\n")) break;
        std::this_thread::yield();
      }
      response->end();
      --running;
    }).detach();
  });
  port = *server->listen("127.0.0.1", 0);
  std::vector<std::thread> clients;
  std::atomic<int> whole{0};
  for (int c = 0; c < 8; ++c) {
    clients.emplace_back([&, c] {
      for (int round = 0; round < 10; ++round) {
        RawClient client(port);
        client.send("GET /tokens HTTP/1.1\r\n\r\n");
        if ((c + round) % 3 == 0) {
          client.read_until("data: 3\n");
          client.reset();
        } else if (client.read_until("\r\n0\r\n\r\n").find("data: 199\n") != std::string::npos) {
          ++whole;
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(whole, 80 - 27);
  EXPECT_TRUE(eventually([&] { return running == 0 && server->open_connections() == 0; }));
  EXPECT_EQ(server->running_requests(), 0);
}

}  // namespace
}  // namespace shoal::wire
