// A connection as bytes, plain or under TLS: what Asio and Beast read from and write to, a server's side or a
// client's.
//
// Internal to wire/: include http_server.h or http_client.h instead.
//
// Thread-safety: none; one loop's thread. One read and one write may be under way at once.
// Ownership: owns the socket; holds the TLS context as long as it lives. Operations under way must end before
//   it goes (the connection outlives them).
// Invariants: without a context every call goes to the socket as it is. cancel() ends waiting reads; what TLS
//   has already taken stays and is handed to the next read.

#pragma once

#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>

#include <memory>
#include <optional>

#include "wire/tls_context.h"

namespace shoal::wire {

class HttpSocket {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using executor_type = Socket::executor_type;

  // tls: null for plain HTTP.
  HttpSocket(Socket socket, std::shared_ptr<TlsContext> tls);

  executor_type get_executor() { return socket_.get_executor(); }
  bool is_tls() const { return secured_; }
  Socket& tcp() { return socket_; }

  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return secured_ ? tls_->async_read_some(buffers, std::forward<Token>(token))
                    : socket_.async_read_some(buffers, std::forward<Token>(token));
  }
  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return secured_ ? tls_->async_write_some(buffers, std::forward<Token>(token))
                    : socket_.async_write_some(buffers, std::forward<Token>(token));
  }

  // The server's side of the handshake; nothing to do without TLS. The caller sets the deadline.
  boost::asio::awaitable<boost::system::error_code> handshake();
  // The client's side, once connected; only under TLS. The caller has said whose name it expects.
  template <typename Token>
  auto handshake_as_client(Token&& token) {
    return tls_->async_handshake(boost::asio::ssl::stream_base::client, std::forward<Token>(token));
  }
  // Of a connection under TLS.
  SSL* native_tls() { return tls_->native_handle(); }
  // After a failed handshake: what follows is read and written as it is. The stream stays, since its
  // operation may be the caller.
  void drop_tls() { secured_ = false; }
  // Says that nothing more will be sent. Under TLS the farewell is answered by clients in their own time: the
  // caller sets the deadline.
  boost::asio::awaitable<boost::system::error_code> end_sending();

  void cancel();
  void close();

 private:
  const std::shared_ptr<TlsContext> context_;
  Socket socket_;
  std::optional<boost::asio::ssl::stream<Socket&>> tls_;
  bool secured_ = false;
};

}  // namespace shoal::wire
