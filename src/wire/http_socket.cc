#include "wire/http_socket.h"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace shoal::wire {

namespace asio = boost::asio;
using boost::system::error_code;

HttpSocket::HttpSocket(Socket socket, std::shared_ptr<TlsContext> tls)
    : context_(std::move(tls)), socket_(std::move(socket)) {
  if (context_ == nullptr) return;
  tls_.emplace(socket_, context_->native());
  secured_ = true;
}

asio::awaitable<error_code> HttpSocket::handshake() {
  error_code error;
  if (secured_) {
    co_await tls_->async_handshake(asio::ssl::stream_base::server,
                                   asio::redirect_error(asio::use_awaitable, error));
  }
  co_return error;
}

asio::awaitable<error_code> HttpSocket::end_sending() {
  error_code error;
  if (secured_) co_await tls_->async_shutdown(asio::redirect_error(asio::use_awaitable, error));
  if (!socket_.is_open()) co_return asio::error::operation_aborted;
  error_code closed;
  socket_.shutdown(Socket::shutdown_send, closed);
  co_return closed;
}

void HttpSocket::cancel() {
  error_code ignored;
  socket_.cancel(ignored);
}

void HttpSocket::close() {
  error_code ignored;
  socket_.close(ignored);
}

}  // namespace shoal::wire
