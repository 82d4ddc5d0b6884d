// An HTTP/1.1 client for the benches and the commands that ask a server: whole answers, or streams of them,
// many at a time.
//
// Thread-safety: start() and the blocking calls from any thread. Callbacks run on the client's own thread,
//   one at a time, and must not block.
// Ownership: owns its thread, connections and callbacks. The destructor cuts what still runs, without calling
//   back, and joins the thread.
// Invariants:
//   1. Every wait has a deadline, but for that of the system's resolver, which cannot be called off: looking
//      up a name ends when the resolver gives up, and the destructor waits for that.
//   2. on_end is called once for each call that runs to its end.
//   3. A new connection per call, so that calls never wait for each other.
//   4. An https:// server is talked to only when its certificate is trusted and carries the URL's name.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/expected.h"
#include "wire/http_message.h"

namespace shoal::wire {

class TlsContext;

struct Url {
  bool tls = false;  // https://
  std::string host;  // without the brackets of an IPv6 address
  std::uint16_t port = 80;
  std::string path;  // empty or "/..."; with the query

  // "http://host[:port][/path]" or "https://..." (port 443); without a scheme it is http.
  static Expected<Url> parse(std::string_view text);
  std::string authority() const;  // "host:port" as the Host header has it
};

struct HttpCall {
  Url url;
  std::string method = "GET";
  HeaderList headers;  // besides Host, Content-Length and Connection
  std::string body;
  std::chrono::milliseconds connect_timeout{5'000};  // TLS: its handshake has as much again
  // Between two reads of the answer, its head included.
  std::chrono::milliseconds idle_timeout{120'000};
  // From start() to the answer's end.
  std::chrono::milliseconds deadline{600'000};
};

struct HttpAnswer {
  int status = 0;
  HeaderList headers;  // names in lower case
  std::string body;
};

class HttpClient {
 public:
  struct Callbacks {
    std::function<void(int status, const HeaderList& headers)> on_head;
    // Bytes of the body as they arrive. False cuts the call; on_end then says kCancelled.
    std::function<bool(std::string_view bytes)> on_data;
    std::function<void(const Status& status)> on_end;
  };

  // tls: what https:// servers are measured by (TlsContext::for_client); null trusts what this system trusts.
  explicit HttpClient(std::shared_ptr<TlsContext> tls = nullptr);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void start(HttpCall call, Callbacks callbacks);

  // Waits for the whole answer, whatever its status. Fails where there is none, or it exceeds max_body bytes.
  Expected<HttpAnswer> send(HttpCall call, std::size_t max_body = 64 * 1024 * 1024);

  // Hands the body of a 200 to on_data as it arrives (on the client's thread); any other status fails with
  // the server's message.
  Status stream(HttpCall call, std::function<bool(std::string_view bytes)> on_data);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::wire
