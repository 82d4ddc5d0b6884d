// An HTTP/1.1 server for JSON answers and event streams: routes, limits, deadlines, drain.
//
// Thread-safety: route() and listen() belong to the owner before traffic; shutdown() and the counters may be
//   called from any thread but the server's own. Handlers run on I/O threads, several at once when io_threads
//   > 1.
// Ownership: owns its threads and connections. ResponseWriters given to handlers may outlive it.
// Invariants:
//   1. Every wait on a client has a deadline: handshake, idle, header, body, write, linger.
//   2. Everything a client can make the server hold has a bound: connections, header bytes, body bytes (each
//      and in sum), pipelined bytes, queued output.
//   3. Pipelined requests are answered in order, one at a time.
//   4. After a connection ends nothing of it is held but what a handler's ResponseWriter needs to do nothing.
// Not here: HTTP/2, compression, multipart.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/expected.h"
#include "wire/http_message.h"
#include "wire/http_router.h"

namespace shoal::wire {

class EventLoop;
class TlsContext;

struct HttpServerOptions {
  // Made by TlsContext::for_server; null serves plain HTTP. A client that speaks plain HTTP to TLS is told
  // so.
  std::shared_ptr<TlsContext> tls;

  // Where connections live and handlers run, alone; it must outlive the server. Null: io_threads threads of
  // its own.
  EventLoop* loop = nullptr;
  int io_threads = 1;
  int max_connections = 1024;  // one more is answered 503 and closed

  std::size_t max_header_bytes = 32 * 1024;              // request line and headers; past it 431
  std::size_t max_body_bytes = 16 * 1024 * 1024;         // past it 413
  std::size_t max_all_bodies_bytes = 256 * 1024 * 1024;  // bodies being read, all connections; past it 503
  // A stream's output not yet taken by the client: 2 MiB is minutes of tokens. Past it the client is cut off.
  std::size_t max_output_backlog = 2 * 1024 * 1024;

  std::chrono::milliseconds handshake_deadline{10'000};  // TLS: from accept
  std::chrono::milliseconds idle_timeout{75'000};        // kept-alive connection without a request
  std::chrono::milliseconds header_deadline{
      10'000};  // from accept or a request's first byte to its last header
  std::chrono::milliseconds body_deadline{60'000};
  // For each 64 KiB of output: a client that takes less than that in this time is cut off.
  std::chrono::milliseconds write_deadline{30'000};

  // Sent as Access-Control-Allow-Origin; empty sends none, and browsers then refuse pages of other origins.
  std::string cors_origin = "*";
  // Paths that get no CORS headers whatever cors_origin says, their preflights neither. Null: none.
  std::function<bool(std::string_view path)> is_private;

  // Sees the head of every request but OPTIONS before its body is read; an answer refuses the request: API
  // keys.
  std::function<std::optional<HttpReply>(const HttpRequest& head)> admit;
};

class HttpServer {
 public:
  explicit HttpServer(HttpServerOptions options = {});
  // shutdown(0) where that has not been done.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // See HttpRouter. Before listen().
  void route(std::string_view method, std::string_view path, HttpHandler handler);

  // Starts to serve and returns the port; port 0 takes a free one. host: an address or a name of this
  // machine.
  Expected<std::uint16_t> listen(const std::string& host, std::uint16_t port);

  // From another thread than the loops'. Stops accepting, closes connections without a running answer, lets
  // running answers finish until `drain` has passed, then closes the rest and joins the threads. True if none
  // had to be cut.
  bool shutdown(std::chrono::milliseconds drain);

  int open_connections() const;
  // Requests whose answer is not yet sent.
  int running_requests() const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::wire
