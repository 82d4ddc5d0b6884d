// TLS of the HTTP server and client: trust, files, deadlines, and bytes that no honest client sends.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>

#include "wire/http_client.h"
#include "wire/http_server.h"
#include "wire/openai_response.h"
#include "wire/tls_context.h"
#include "wire/tls_material.h"

namespace shoal::wire {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kGet = "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n";

class TlsTest : public testing::Test {
 protected:
  static const CertificateFolder& files() {
    static const CertificateFolder made;
    return made;
  }

  void start(HttpServerOptions options = {}, const std::string& name = "server") {
    options.tls = *TlsContext::for_server(files() / (name + ".pem"), files() / (name + ".key"));
    server = std::make_unique<HttpServer>(std::move(options));
    server->route("GET", "/hello", [](HttpRequest, ResponsePtr response) {
      response->respond(200, "text/plain", "hi there");
    });
    server->route("POST", "/echo", [](HttpRequest request, ResponsePtr response) {
      response->respond(200, "text/plain", request.body);
    });
    server->route("GET", "/hang", [this](HttpRequest, ResponsePtr response) { held = std::move(response); });
    server->route("GET", "/big", [](HttpRequest, ResponsePtr response) {
      response->respond(200, "text/plain", std::string(8'000'000, 'x'));
    });
    server->route("GET", "/stream", [](HttpRequest, ResponsePtr response) {
      response->begin_stream(200, kSseContentType);
      for (int i = 0; i < 100; ++i) response->write("data: piece\n\n");
      response->end();
    });
    port = *server->listen("127.0.0.1", 0);
  }
  static std::shared_ptr<TlsContext> trusting() { return *TlsContext::for_client(files() / "authority.pem"); }
  HttpCall call(std::string path, const std::string& host = "127.0.0.1",
                const std::string& scheme = "https") const {
    HttpCall call;
    call.url = *Url::parse(scheme + "://" + host + ":" + std::to_string(port) + path);
    return call;
  }

  ResponsePtr held;
  std::unique_ptr<HttpServer> server;
  std::uint16_t port = 0;
};

TEST_F(TlsTest, CarriesWholeAnswersAndStreams) {
  start();
  HttpClient client(trusting());
  for (const std::string host : {"127.0.0.1", "localhost"}) {
    HttpCall echo = call("/echo", host);
    echo.method = "POST";
    echo.body = std::string(300'000, 'y');
    const auto answer = client.send(echo);
    ASSERT_TRUE(answer.ok()) << answer.error().message();
    EXPECT_EQ(answer->body, echo.body);
  }
  EXPECT_EQ(client.send(call("/big"))->body.size(), 8'000'000U);
  std::size_t bytes = 0;
  ASSERT_TRUE(client
                  .stream(call("/stream"),
                          [&](std::string_view data) {
                            bytes += data.size();
                            return true;
                          })
                  .ok());
  EXPECT_EQ(bytes, 100U * 13);
  EXPECT_TRUE(eventually([&] { return server->open_connections() == 0; }));
}

TEST_F(TlsTest, ManyCallsAtOnceOnSeveralThreads) {
  HttpServerOptions options;
  options.io_threads = 2;
  start(options);
  HttpClient client(trusting());
  std::atomic<int> ended{0};
  std::atomic<int> bytes{0};
  for (int i = 0; i < 40; ++i) {
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
  EXPECT_TRUE(eventually([&] { return ended == 40; }));
  EXPECT_EQ(bytes, 40 * 100 * 13);
}

TEST_F(TlsTest, AServerIsTalkedToOnlyWhenItsCertificateIsTrustedAndItsOwn) {
  start();
  HttpClient strangers;  // trusts the system's authorities
  const auto unknown = strangers.send(call("/hello"));
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().message().find("--ca-file"), std::string::npos) << unknown.error().message();

  CertificateFolder own;
  own.add("other", "DNS:elsewhere,IP:127.0.0.9");
  HttpServerOptions options;
  options.tls = *TlsContext::for_server(own / "other.pem", own / "other.key");
  HttpServer elsewhere(options);
  port = *elsewhere.listen("127.0.0.1", 0);
  HttpClient client(*TlsContext::for_client(own / "authority.pem"));
  for (const std::string host : {"127.0.0.1", "localhost"}) {
    const auto other = client.send(call("/hello", host));
    ASSERT_FALSE(other.ok());
    EXPECT_TRUE(other.error().message().ends_with("its certificate is for another name"))
        << other.error().message();
  }
}

TEST(TlsHost, AnAddressIsExpectedWithoutItsZone) {
  const auto context = *TlsContext::for_client();
  const auto expected = [&](const std::string& host) {
    const OpenSslPtr<SSL> connection(SSL_new(context->native().native_handle()));
    if (!expect_host(connection.get(), host)) return std::string("refused");
    char* const text = X509_VERIFY_PARAM_get1_ip_asc(SSL_get0_param(connection.get()));
    std::string address = text == nullptr ? "" : text;
    OPENSSL_free(text);
    const char* name = SSL_get_servername(connection.get(), TLSEXT_NAMETYPE_host_name);
    return address + (name == nullptr ? "" : std::string("name ") + name);
  };
  EXPECT_EQ(expected("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(expected("fe80::1"), "FE80:0:0:0:0:0:0:1");
  EXPECT_EQ(expected("fe80::1%lo"), "FE80:0:0:0:0:0:0:1");
  EXPECT_EQ(expected("fe80::1%7"), "FE80:0:0:0:0:0:0:1");
  EXPECT_EQ(expected("localhost"), "name localhost");
  EXPECT_EQ(expected(""), "refused");
  EXPECT_EQ(expected(std::string("good\0.bad", 9)), "refused");
  EXPECT_EQ(expected(std::string(300, 'x')), "refused") << "longer than a name can be";
}

TEST_F(TlsTest, AnExpiredCertificateIsNotTrusted) {
  CertificateFolder own;
  own.add("old", "IP:127.0.0.1", -1);
  HttpServerOptions options;
  options.tls = *TlsContext::for_server(own / "old.pem", own / "old.key");
  HttpServer old(options);
  port = *old.listen("127.0.0.1", 0);
  HttpClient client(*TlsContext::for_client(own / "authority.pem"));
  const auto answer = client.send(call("/hello"));
  ASSERT_FALSE(answer.ok());
  EXPECT_NE(answer.error().message().find("expired"), std::string::npos) << answer.error().message();
}

TEST_F(TlsTest, PlainHttpIsToldToComeWithTls) {
  start();
  HttpClient client;
  const auto answer = client.send(call("/hello", "127.0.0.1", "http"));
  ASSERT_TRUE(answer.ok()) << answer.error().message();
  EXPECT_EQ(answer->status, 400);
  EXPECT_NE(answer->body.find("https://"), std::string::npos);
  EXPECT_TRUE(eventually([&] { return server->open_connections() == 0; }));
}

TEST_F(TlsTest, AServerWithoutTlsIsNamed) {
  HttpServer plain;
  port = *plain.listen("127.0.0.1", 0);
  HttpClient client(trusting());
  const auto answer = client.send(call("/hello"));
  ASSERT_FALSE(answer.ok());
  EXPECT_NE(answer.error().message().find("does not speak TLS"), std::string::npos)
      << answer.error().message();
}

TEST_F(TlsTest, OneConnectionCarriesManyRequestsAndEndsWithAFarewell) {
  start();
  TlsClient client(port);
  ASSERT_TRUE(client.secured());
  for (int i = 0; i < 20; ++i) {
    const std::size_t from = client.read_until("", 0).size();
    ASSERT_TRUE(client.send(kGet));
    EXPECT_NE(client.read_until("hi there", from).find("hi there", from), std::string::npos) << i;
  }
  ASSERT_TRUE(client.send(std::string(kGet) + std::string(kGet) +
                          "GET /hello HTTP/1.1\r\nConnection: close\r\n\r\n"));
  const std::string& all = client.read_to_close();
  std::size_t answers = 0;
  for (std::size_t at = all.find("hi there"); at != std::string::npos; at = all.find("hi there", at + 1))
    ++answers;
  EXPECT_EQ(answers, 23U);
  EXPECT_TRUE(client.ended_properly());
}

TEST_F(TlsTest, AVersionBefore12IsRefused) {
  start();
  EXPECT_FALSE(TlsClient(port, TLS1_1_VERSION).secured());
  EXPECT_TRUE(TlsClient(port, TLS1_2_VERSION).secured());
}

TEST_F(TlsTest, ASilentOrSlowHandshakeEndsAtItsDeadline) {
  HttpServerOptions options;
  options.handshake_deadline = 100ms;
  start(options);
  RawClient silent(port);
  RawClient half(port);
  ASSERT_TRUE(half.send(
      std::string_view("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11)));  // a ClientHello's start
  silent.read_to_close();
  half.read_to_close();
  EXPECT_TRUE(silent.closed_by_server());
  EXPECT_TRUE(half.closed_by_server());
  EXPECT_TRUE(eventually([&] { return server->open_connections() == 0; }));
}

TEST_F(TlsTest, GarbageInsteadOfAHandshakeEndsTheConnection) {
  start();
  for (const std::string& raw :
       {std::string(2000, '\0'), std::string("\x16\x03\x01\x00\x05hello"), std::string("SSH-2.0-x\r\n"),
        std::string("\x80\x2e\x01\x00\x02", 5) + std::string(60, 'a')}) {
    RawClient client(port);
    ASSERT_TRUE(client.send(raw));
    client.close_sending_side();
    client.read_to_close();
    EXPECT_TRUE(client.closed_by_server());
  }
  EXPECT_TRUE(eventually([&] { return server->open_connections() == 0; }));
  EXPECT_EQ(HttpClient(trusting()).send(call("/hello"))->status, 200);
}

TEST_F(TlsTest, GarbageAfterTheHandshakeEndsTheConnection) {
  start();
  {
    TlsClient client(port);
    ASSERT_TRUE(client.secured());
    ASSERT_EQ(::send(client.fd(), "no record of TLS", 16, MSG_NOSIGNAL), 16);
  }
  EXPECT_TRUE(eventually([&] { return server->open_connections() == 0; }));
}

TEST_F(TlsTest, AClientThatReadsNothingIsCutOff) {
  HttpServerOptions options;
  options.write_deadline = 200ms;
  start(options);
  TlsClient client(port, TLS1_3_VERSION, 4096);
  ASSERT_TRUE(client.secured());
  ASSERT_TRUE(client.send("GET /big HTTP/1.1\r\nHost: a\r\n\r\n"));
  EXPECT_TRUE(eventually([&] { return server->open_connections() == 0; }));
}

TEST_F(TlsTest, AClientThatLeavesEndsItsRequest) {
  start();
  {
    TlsClient client(port);
    ASSERT_TRUE(client.send("GET /hang HTTP/1.1\r\nHost: a\r\n\r\n"));
    EXPECT_TRUE(eventually([&] { return server->running_requests() == 1; }));
  }
  EXPECT_TRUE(eventually([&] { return server->running_requests() == 0 && server->open_connections() == 0; }));
}

TEST_F(TlsTest, AnIdleConnectionAndAHalfSentRecordEnd) {
  HttpServerOptions options;
  options.idle_timeout = 150ms;
  options.header_deadline = 150ms;
  start(options);
  TlsClient idle(port);
  ASSERT_TRUE(idle.send(kGet));
  idle.read_to_close();
  TlsClient half(port);
  ASSERT_TRUE(half.send(kGet));
  half.read_until("hi there");
  ASSERT_EQ(::send(half.fd(), "\x17\x03\x03\x00\x50half", 9, MSG_NOSIGNAL), 9);  // 80 bytes are promised
  half.read_to_close();
  EXPECT_TRUE(eventually([&] { return server->open_connections() == 0; }));
}

TEST_F(TlsTest, ShutdownEndsConnectionsInEveryState) {
  start();
  RawClient silent(port);
  TlsClient idle(port);
  TlsClient running(port);
  ASSERT_TRUE(running.send("GET /hang HTTP/1.1\r\nHost: a\r\n\r\n"));
  EXPECT_TRUE(eventually([&] { return server->running_requests() == 1 && server->open_connections() == 3; }));
  std::thread answer([&] {
    EXPECT_TRUE(eventually([&] { return server->open_connections() == 1; }));
    held->respond(200, "text/plain", "late");
  });
  EXPECT_TRUE(server->shutdown(10s));
  answer.join();
  EXPECT_NE(running.read_to_close().find("late"), std::string::npos);
}

TEST_F(TlsTest, OneConnectionTooManyIsToldSo) {
  HttpServerOptions options;
  options.max_connections = 1;
  start(options);
  TlsClient first(port);
  ASSERT_TRUE(first.secured());
  TlsClient second(port);
  ASSERT_TRUE(second.secured());
  EXPECT_NE(second.read_to_close().find("503"), std::string::npos);
}

TEST(TlsFiles, EveryWrongFileIsOneSentence) {
  CertificateFolder files;
  files.add("other", "DNS:localhost");
  files.add_encrypted_key("locked.key");
  files.add_text("empty", "");
  files.add_text("prose", "This is no PEM file.\n");
  files.add_text("cut.pem", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n");
  const auto refusal = [&](const std::string& certificate, const std::string& key) {
    const auto made = TlsContext::for_server(files / certificate, files / key);
    return made.ok() ? std::string("accepted") : made.error().message();
  };
  EXPECT_EQ(refusal("server.pem", "server.key"), "accepted");
  EXPECT_NE(refusal("none.pem", "server.key").find("cannot read the certificate (No such file"),
            std::string::npos);
  EXPECT_NE(refusal("server.pem", "none.key").find("cannot read the private key (No such file"),
            std::string::npos);
  EXPECT_NE(refusal("", "server.key").find("is not a file that could hold the certificate"),
            std::string::npos);
  EXPECT_NE(refusal("empty", "server.key").find("holds no certificate in PEM form"), std::string::npos);
  EXPECT_NE(refusal("prose", "server.key").find("holds no certificate in PEM form"), std::string::npos);
  EXPECT_NE(refusal("cut.pem", "server.key").find("certificate"), std::string::npos);
  EXPECT_NE(refusal("server.key", "server.key").find("holds no certificate in PEM form"), std::string::npos);
  EXPECT_NE(refusal("server.pem", "server.pem").find("holds no private key in PEM form"), std::string::npos);
  EXPECT_NE(refusal("server.pem", "other.key").find("does not belong to the certificate"), std::string::npos);
  // A certificate's key of another kind.
  files.add_rsa("rsa", "DNS:localhost");
  EXPECT_EQ(refusal("rsa.pem", "rsa.key"), "accepted");
  EXPECT_NE(refusal("rsa.pem", "server.key").find("does not belong to the certificate"), std::string::npos);
  EXPECT_NE(refusal("server.pem", "rsa.key").find("does not belong to the certificate"), std::string::npos);
  EXPECT_NE(refusal("server.pem", "locked.key").find("is encrypted"), std::string::npos)
      << refusal("server.pem", "locked.key");
  EXPECT_FALSE(TlsContext::for_client(files / "prose").ok());
  EXPECT_FALSE(TlsContext::for_client(files / "none").ok());
  EXPECT_TRUE(TlsContext::for_client().ok());
}

}  // namespace
}  // namespace shoal::wire
