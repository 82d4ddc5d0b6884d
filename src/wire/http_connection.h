// One client's connection to the HTTP server: reads requests, hands them to the router, sends the answers.
//
// Internal to wire/: include http_server.h instead.
//
// Thread-safety: a connection lives on the one thread of its loop; other threads reach it through
//   ResponseState alone, which posts to that loop.
// Ownership: kept alive by its reading coroutine, pending writes and armed deadlines; close() ends all three.
//   Life: handshake (TLS) -> [read head -> read body -> handler -> answer sent]* -> linger -> closed. While
//   an answer is under way a read stays pending: it keeps what the client pipelines and notices at once when
//   the client goes.

#pragma once

#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>

#include "wire/http_router.h"
#include "wire/http_server.h"
#include "wire/http_socket.h"
#include "wire/response_state.h"

namespace shoal::wire {

class HttpConnection;

// What the connections of one server share.
struct HttpShared {
  HttpServerOptions options;
  HttpRouter router;
  std::atomic<int> connections{0};
  std::atomic<int> refusals{0};
  std::atomic<int> running{0};
  std::atomic<std::size_t> body_bytes{0};

  std::mutex ended_mutex;
  std::condition_variable ended;  // connections + refusals has fallen
};

// The connections that live on one loop; touched by that loop's thread only.
struct HttpLoop {
  HttpLoop() : own(std::make_unique<boost::asio::io_context>(1)), context(*own) {}
  explicit HttpLoop(boost::asio::io_context& given) : context(given) {}

  std::unordered_set<HttpConnection*> connections;
  bool draining = false;
  // Last: what it still holds refers to the members above.
  const std::unique_ptr<boost::asio::io_context> own;  // null on a loop of somebody else's
  boost::asio::io_context& context;
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  // refused: one connection too many; it is told so and closed.
  HttpConnection(std::shared_ptr<HttpShared> shared, HttpLoop& loop, boost::asio::ip::tcp::socket socket,
                 bool refused);
  ~HttpConnection();

  void start();
  // Ends now if no answer is under way, else after it.
  void drain();
  void close();

 private:
  boost::asio::awaitable<void> serve();
  // False: no TLS came about; what there is to say has been said in plain HTTP.
  boost::asio::awaitable<bool> secure();
  // False: the connection is to end (an error answer may be under way).
  boost::asio::awaitable<bool> read_request(HttpRequest& request, ResponseState::Traits& traits);
  boost::asio::awaitable<void> until_first_byte(bool first);
  boost::asio::awaitable<void> until_answered();
  boost::asio::awaitable<void> linger();

  void dispatch(HttpRequest request, ResponseState::Traits traits);
  ResponsePtr begin_answer(ResponseState::Traits traits);
  void refuse(const HttpReply& reply, ResponseState::Traits traits);
  void pump();
  void write_slice();
  void cut();
  void answered();

  void arm(boost::asio::steady_timer& timer, std::uint64_t& generation, std::chrono::milliseconds after);
  void arm_read(std::chrono::milliseconds after) { arm(read_timer_, read_generation_, after); }
  void disarm_read();

  const std::shared_ptr<HttpShared> shared_;
  HttpLoop& loop_;
  HttpSocket socket_;
  boost::beast::flat_buffer buffer_;
  boost::asio::steady_timer read_timer_;
  boost::asio::steady_timer write_timer_;
  boost::asio::steady_timer answered_;  // never expires by itself; cancelled when an answer has been sent
  std::uint64_t read_generation_ = 0;
  std::uint64_t write_generation_ = 0;

  std::shared_ptr<ResponseState> response_;  // the answer under way
  std::string out_;
  std::size_t written_ = 0;  // of out_
  std::string remote_;
  const bool refused_;
  bool writing_ = false;
  bool open_ = true;
  bool last_ = false;  // no further request is taken
};

}  // namespace shoal::wire
