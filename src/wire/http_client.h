// An HTTP/1.1 client for the gateway, the benches and the commands that ask a server: whole answers, or
// streams of them, many at a time.
//
// Thread-safety: start(), the blocking calls and HttpExchange from any thread. Callbacks run on the client's
//   loop, one at a time, and must not block; the blocking calls must not come from there.
// Ownership: owns its connections and callbacks, and its loop where none was given. The destructor cuts what
//   still runs, without calling back.
// Invariants:
//   1. Every wait has a deadline, but for that of the system's resolver, which cannot be called off: looking
//      up a name ends when the resolver gives up, and the destructor of a client with a loop of its own waits
//      for that.
//   2. on_end is called once for each call that runs to its end.
//   3. Calls never wait for each other: each has a connection for itself, a kept one where one is idle.
//   4. An https:// server is talked to only when its certificate is trusted and carries the URL's name.
//   5. A call that finds its kept connection closed by the server, before a byte of the answer came, is sent
//      once more on a new one.

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
#include "wire/url.h"

namespace shoal::wire {

class EventLoop;
class TlsContext;

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

struct HttpClientOptions {
  // What https:// servers are measured by (TlsContext::for_client); null trusts what this system trusts.
  std::shared_ptr<TlsContext> tls;
  // Where connections live and callbacks run; it must outlive the client. Null: a thread of its own.
  EventLoop* loop = nullptr;
  // Connections kept open for later calls, of each server; 0: each call has a new one.
  std::size_t max_idle = 0;
  // Servers close what idles: this is below the usual 60 s and more.
  std::chrono::milliseconds keep_idle{30'000};
};

// A call under way.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  // Ends the call where it has not ended; nothing is called back afterwards when this comes from the loop.
  virtual void cancel() = 0;
  // While paused no more of the answer is read, so that the server waits; deadlines go on.
  virtual void pause() = 0;
  virtual void resume() = 0;
};

class HttpClient {
 public:
  struct Callbacks {
    std::function<void(int status, const HeaderList& headers)> on_head;
    // Bytes of the body as they arrive. False cuts the call; on_end then says kCancelled.
    std::function<bool(std::string_view bytes)> on_data;
    std::function<void(const Status& status)> on_end;
  };

  explicit HttpClient(HttpClientOptions options);
  explicit HttpClient(std::shared_ptr<TlsContext> tls = nullptr);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // The handle may be dropped; the call goes on.
  std::shared_ptr<HttpExchange> start(HttpCall call, Callbacks callbacks);

  // Waits for the whole answer, whatever its status. Fails where there is none, or it exceeds max_body bytes.
  Expected<HttpAnswer> send(HttpCall call, std::size_t max_body = 64 * 1024 * 1024);

  // Hands the body of a 200 to on_data as it arrives (on the client's thread); any other status fails with
  // the server's message.
  Status stream(HttpCall call, std::function<bool(std::string_view bytes)> on_data);

  // Connections open to any server, idle ones included.
  std::size_t open_connections() const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::wire
