// One connection to a server, for one call after the other: connects, sends, reads the answer, keeps or
// closes.
//
// Internal to wire/: include http_client.h instead.
//
// Thread-safety: lives on its loop's thread.
// Ownership: kept alive by its pending operations and by the pool while idle. Holds the call and its
//   callbacks while one is under way.
// Invariants:
//   1. A read is pending whenever the connection is open, idle, or not paused: a server that goes is noticed.
//   2. Each call ends once, by end(); nothing is called back after that, or after abandon().
// Callbacks, not coroutines, and one parser fed by hand: a token's event of a stream costs one read, one
//   parse and no timer (the deadline is looked at when it comes, and set anew then).

#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "core/clock.h"
#include "wire/http_client.h"
#include "wire/http_socket.h"

namespace shoal::wire {

class ClientConnection;

// The connections of one client, on one loop.
struct ClientPool {
  boost::asio::io_context* context = nullptr;
  std::size_t max_idle = 0;
  std::chrono::milliseconds keep_idle{0};
  // By scheme and authority; the one used last comes first.
  std::unordered_map<std::string, std::deque<std::shared_ptr<ClientConnection>>> idle;
  std::unordered_set<ClientConnection*> all;
  std::atomic<std::size_t> open{0};
  bool closed = false;  // the client has gone: nothing is called back
};

// A call and what it has become so far; of the loop's thread, but for the call itself, which never changes.
struct ClientCall {
  ClientCall(HttpCall c, HttpClient::Callbacks b, std::shared_ptr<TlsContext> t)
      : call(std::move(c)), callbacks(std::move(b)), tls(std::move(t)) {}

  const HttpCall call;
  HttpClient::Callbacks callbacks;
  const std::shared_ptr<TlsContext> tls;  // null for http://
  const TimePoint begun = now();
  std::weak_ptr<ClientConnection> connection;
  bool over = false;
  bool paused = false;
  bool sent_before = false;  // on a kept connection that was found closed
};

// Takes each piece of an answer's body as it is parsed.
struct SinkBody {
  struct value_type {
    ClientConnection* connection = nullptr;
  };
  class reader {
   public:
    template <bool isRequest, typename Fields>
    reader(boost::beast::http::header<isRequest, Fields>&, value_type& body) : body_(body) {}
    void init(const boost::optional<std::uint64_t>&, boost::system::error_code& error);
    template <typename Buffers>
    std::size_t put(const Buffers& buffers, boost::system::error_code& error) {
      std::size_t size = 0;
      for (auto it = boost::asio::buffer_sequence_begin(buffers);
           it != boost::asio::buffer_sequence_end(buffers); ++it) {
        const boost::asio::const_buffer piece = *it;
        take({static_cast<const char*>(piece.data()), piece.size()}, error);
        if (error) return size;
        size += piece.size();
      }
      return size;
    }
    void finish(boost::system::error_code& error) { error = {}; }

   private:
    void take(std::string_view bytes, boost::system::error_code& error);
    value_type& body_;
  };
};

class ClientConnection : public std::enable_shared_from_this<ClientConnection> {
 public:
  // Takes the call over on a kept connection or a new one.
  static void begin(const std::shared_ptr<ClientPool>& pool, std::shared_ptr<ClientCall> call);

  ClientConnection(std::shared_ptr<ClientPool> pool, std::string key, std::shared_ptr<TlsContext> tls);
  ~ClientConnection();

  void cancel_call();
  void set_paused(bool paused);
  // Closes without a word to anybody.
  void abandon();

 private:
  friend class SinkBody::reader;
  using Parser = boost::beast::http::response_parser<SinkBody>;

  void take(std::shared_ptr<ClientCall> call);
  void connect();
  void connected();
  void send();
  void read();
  void read_done(const boost::system::error_code& error, std::size_t size);
  // False: the call has ended, or must wait for more.
  bool parse();
  void begin_answer();
  void answered();
  void head_has_come();
  bool data_has_come(std::string_view bytes);
  void keep_or_close();

  // at: when the call ends with kDeadline, unless moved.
  void set_deadline(TimePoint at);
  void arm_timer();
  void set_wait(std::chrono::milliseconds patience);

  void fail(const boost::system::error_code& error);
  void end(Status status);
  void close();

  const std::shared_ptr<ClientPool> pool_;
  const std::string key_;
  const std::shared_ptr<TlsContext> tls_;
  HttpSocket socket_;
  boost::asio::ip::tcp::resolver resolver_;
  boost::asio::steady_timer timer_;
  TimePoint deadline_ = TimePoint::max();
  TimePoint armed_for_ = TimePoint::max();
  bool timer_armed_ = false;
  boost::beast::flat_buffer in_;
  std::string head_;
  std::optional<Parser> parser_;
  std::shared_ptr<ClientCall> call_;
  bool open_ = true;
  bool kept_ = false;     // the call came to a connection that had been idle
  bool reading_ = false;  // a read is pending
  bool writing_ = false;  // a call's bytes are not yet all out
  bool parsing_ = false;
  bool head_seen_ = false;
  bool any_byte_ = false;                    // of the answer
  const char* doing_ = "cannot connect to";  // what an error's sentence begins with
};

}  // namespace shoal::wire
