#include "wire/http_client.h"

#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <future>
#include <limits>
#include <mutex>
#include <thread>

#include "core/clock.h"
#include "wire/api_error.h"
#include "wire/tls_context.h"

namespace shoal::wire {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using tcp = boost::asio::ip::tcp;

namespace {

constexpr std::size_t kReadBytes = 16 * 1024;

struct Running {
  Running(HttpCall c, HttpClient::Callbacks b, std::shared_ptr<TlsContext> t)
      : call(std::move(c)), callbacks(std::move(b)), tls(std::move(t)) {}

  // What is left of `patience` under the call's own deadline.
  std::chrono::milliseconds within(std::chrono::milliseconds patience) const {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(begun + call.deadline - now());
    return std::max(std::chrono::milliseconds(0), std::min(patience, left));
  }

  const HttpCall call;
  const HttpClient::Callbacks callbacks;
  const std::shared_ptr<TlsContext> tls;  // null for http://
  const TimePoint begun = now();
};

std::string request_text(const HttpCall& call) {
  std::string text = fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", call.method,
                                 call.url.path.empty() ? "/" : call.url.path, call.url.authority());
  for (const auto& [name, value] : call.headers) text += fmt::format("{}: {}\r\n", name, value);
  if (!call.body.empty() || call.method == "POST")
    text += fmt::format("Content-Length: {}\r\n", call.body.size());
  text += "\r\n";
  text += call.body;
  return text;
}

Status failed(const HttpCall& call, std::string_view doing, const error_code& error) {
  const bool late = error == beast::error::timeout;
  return {
      late ? ErrorCode::kDeadline : ErrorCode::kUnavailable,
      fmt::format("{} {}: {}", doing, call.url.authority(), late ? "no answer in time" : error.message())};
}

using Fields = http::response_parser<http::buffer_body>;

HeaderList headers_of(const Fields& parser) {
  HeaderList headers;
  for (const auto& field : parser.get()) {
    const auto name = field.name_string();
    const auto value = field.value();
    headers.emplace_back(to_lower({name.data(), name.size()}), std::string(value.data(), value.size()));
  }
  return headers;
}

asio::awaitable<Status> connect(const Running& running, beast::tcp_stream& stream) {
  const HttpCall& call = running.call;
  error_code error;
  stream.expires_after(running.within(call.connect_timeout));
  const auto address = asio::ip::make_address(call.url.host, error);
  if (!error) {
    co_await stream.async_connect(tcp::endpoint(address, call.url.port),
                                  asio::redirect_error(asio::use_awaitable, error));
  } else {
    tcp::resolver resolver(stream.get_executor());
    const auto found = co_await resolver.async_resolve(call.url.host, std::to_string(call.url.port),
                                                       asio::redirect_error(asio::use_awaitable, error));
    if (!error) co_await stream.async_connect(found, asio::redirect_error(asio::use_awaitable, error));
  }
  if (error) co_return failed(call, "cannot connect to", error);
  stream.socket().set_option(tcp::no_delay(true), error);
  co_return Status();
}

Status no_handshake(const HttpCall& call, SSL* connection, const error_code& error) {
  const std::string untrusted = untrusted_because(connection);
  if (!untrusted.empty() && error != beast::error::timeout) {
    return {ErrorCode::kUnavailable, fmt::format("cannot trust {}: {}", call.url.authority(), untrusted)};
  }
  if (is_not_tls(error)) {
    return {ErrorCode::kUnavailable, fmt::format("{} does not speak TLS: try http://", call.url.authority())};
  }
  return failed(call, "cannot agree on TLS with", error);
}

// stream: a beast::tcp_stream, bare or inside an ssl_stream; connected.
template <typename Stream>
asio::awaitable<Status> ask(const Running& running, Stream& stream) {
  const HttpCall& call = running.call;
  beast::tcp_stream& lowest = beast::get_lowest_layer(stream);
  error_code error;
  const std::string request = request_text(call);
  lowest.expires_after(running.within(call.idle_timeout));
  co_await asio::async_write(stream, asio::buffer(request), asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return failed(call, "cannot send to", error);

  beast::flat_buffer buffer;
  Fields parser;
  // Beast 1.74 takes "no limit" (boost::none) for a limit below every Content-Length.
  parser.body_limit(std::numeric_limits<std::uint64_t>::max());
  lowest.expires_after(running.within(call.idle_timeout));
  co_await http::async_read_header(stream, buffer, parser, asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return failed(call, "no answer from", error);
  if (running.callbacks.on_head) running.callbacks.on_head(parser.get().result_int(), headers_of(parser));

  std::array<char, kReadBytes> bytes;
  // An eager parser goes on reading after a chunk to see the next one's head, and so hands it over one chunk
  // late.
  parser.eager(false);
  while (!parser.is_done()) {
    parser.get().body().data = bytes.data();
    parser.get().body().size = bytes.size();
    lowest.expires_after(running.within(call.idle_timeout));
    co_await http::async_read_some(stream, buffer, parser, asio::redirect_error(asio::use_awaitable, error));
    const std::size_t size = bytes.size() - parser.get().body().size;
    if (size > 0 && running.callbacks.on_data && !running.callbacks.on_data({bytes.data(), size})) {
      co_return Status(ErrorCode::kCancelled, "the call was cut by its caller");
    }
    if (error == http::error::need_buffer) error = {};
    if (error) co_return failed(call, "the answer broke off from", error);
  }
  co_return Status();
}

// The answer has come or not: no farewell, since each call has a connection of its own.
asio::awaitable<Status> exchange(const Running& running) {
  const HttpCall& call = running.call;
  if (running.tls == nullptr) {
    beast::tcp_stream stream(co_await asio::this_coro::executor);
    Status connected = co_await connect(running, stream);
    if (!connected.ok()) co_return connected;
    co_return co_await ask(running, stream);
  }
  beast::ssl_stream<beast::tcp_stream> stream(co_await asio::this_coro::executor, running.tls->native());
  Status connected = co_await connect(running, stream.next_layer());
  if (!connected.ok()) co_return connected;
  if (!expect_host(stream.native_handle(), call.url.host)) {
    co_return Status(
        ErrorCode::kInvalidArgument,
        fmt::format("cannot trust {}: no certificate can be for that name", call.url.authority()));
  }
  error_code error;
  stream.next_layer().expires_after(running.within(call.connect_timeout));
  co_await stream.async_handshake(asio::ssl::stream_base::client,
                                  asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return no_handshake(call, stream.native_handle(), error);
  co_return co_await ask(running, stream);
}

asio::awaitable<void> run(std::shared_ptr<Running> running) {
  const Status status = co_await exchange(*running);
  if (running->callbacks.on_end) running->callbacks.on_end(status);
}

}  // namespace

struct HttpClient::Impl {
  explicit Impl(std::shared_ptr<TlsContext> given) : tls(std::move(given)) {}

  // For the first https:// call where none was given: reading the system's certificates takes milliseconds.
  Expected<std::shared_ptr<TlsContext>> trusted() {
    std::scoped_lock lock(tls_mutex);
    if (tls == nullptr) {
      SHOAL_ASSIGN(made, TlsContext::for_client());
      tls = std::move(made);
    }
    return tls;
  }

  std::mutex tls_mutex;
  std::shared_ptr<TlsContext> tls;
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard = asio::make_work_guard(context);
  std::thread thread{[this] { context.run(); }};
};

HttpClient::HttpClient(std::shared_ptr<TlsContext> tls) : impl_(std::make_unique<Impl>(std::move(tls))) {}

HttpClient::~HttpClient() {
  impl_->context.stop();
  impl_->thread.join();
}

void HttpClient::start(HttpCall call, Callbacks callbacks) {
  std::shared_ptr<TlsContext> tls;
  if (call.url.tls) {
    auto trusted = impl_->trusted();
    if (!trusted.ok()) {
      asio::post(impl_->context, [callbacks = std::move(callbacks), error = trusted.error()] {
        if (callbacks.on_end) callbacks.on_end(error);
      });
      return;
    }
    tls = *std::move(trusted);
  }
  auto running = std::make_shared<Running>(std::move(call), std::move(callbacks), std::move(tls));
  asio::co_spawn(
      impl_->context, [running] { return run(running); },
      [running](std::exception_ptr failure) {
        if (failure && running->callbacks.on_end) {
          running->callbacks.on_end(Status(ErrorCode::kInternal, "the client failed"));
        }
      });
}

Expected<HttpAnswer> HttpClient::send(HttpCall call, std::size_t max_body) {
  struct Collected {
    HttpAnswer answer;
    bool too_long = false;
    std::promise<Status> done;
  };
  const std::string authority = call.url.authority();
  const auto patience = call.deadline + std::chrono::seconds(10);
  auto collected = std::make_shared<Collected>();
  auto done = collected->done.get_future();
  start(std::move(call), {[collected](int status, const HeaderList& headers) {
                            collected->answer.status = status;
                            collected->answer.headers = headers;
                          },
                          [collected, max_body](std::string_view bytes) {
                            collected->too_long = collected->answer.body.size() + bytes.size() > max_body;
                            if (!collected->too_long) collected->answer.body += bytes;
                            return !collected->too_long;
                          },
                          [collected](const Status& status) { collected->done.set_value(status); }});
  // Only a name that does not resolve can outlast the call's own deadline.
  if (done.wait_for(patience) != std::future_status::ready) {
    return Status(ErrorCode::kDeadline, fmt::format("no answer from {} in time", authority));
  }
  const Status status = done.get();
  if (collected->too_long) {
    return Status(ErrorCode::kCorrupt,
                  fmt::format("the answer from {} exceeds {} bytes", authority, max_body));
  }
  if (!status.ok()) return status;
  return std::move(collected->answer);
}

Status HttpClient::stream(HttpCall call, std::function<bool(std::string_view bytes)> on_data) {
  struct Collected {
    int status = 0;
    std::string refusal;
    std::promise<Status> done;
  };
  constexpr std::size_t kMaxRefusal = 64 * 1024;
  const std::string authority = call.url.authority();
  const auto patience = call.deadline + std::chrono::seconds(10);
  auto collected = std::make_shared<Collected>();
  auto done = collected->done.get_future();
  start(std::move(call), {[collected](int status, const HeaderList&) { collected->status = status; },
                          [collected, on_data = std::move(on_data)](std::string_view bytes) {
                            if (collected->status == 200) return on_data(bytes);
                            if (collected->refusal.size() < kMaxRefusal) collected->refusal += bytes;
                            return true;
                          },
                          [collected](const Status& status) { collected->done.set_value(status); }});
  if (done.wait_for(patience) != std::future_status::ready) {
    return {ErrorCode::kDeadline, fmt::format("no answer from {} in time", authority)};
  }
  SHOAL_TRY(done.get());
  if (collected->status == 200) return {};
  return {ErrorCode::kUnavailable, fmt::format("{} answered {}: {}", authority, collected->status,
                                               error_message_of(collected->refusal))};
}

Expected<Url> Url::parse(std::string_view text) {
  const auto wrong = [text](std::string_view why) {
    return Status(ErrorCode::kInvalidArgument, fmt::format("'{}' is no URL to ask: {}", text, why));
  };
  std::string_view rest = text;
  Url url;
  if (rest.starts_with("https://")) {
    url.tls = true;
    url.port = 443;
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else if (const auto scheme = rest.find("://"); scheme < rest.find('/')) {
    return wrong("only http:// and https:// are spoken here");
  }
  const std::size_t slash = rest.find('/');
  if (slash != std::string_view::npos) url.path = std::string(rest.substr(slash));
  std::string_view authority = rest.substr(0, slash);
  std::string_view port;
  if (authority.starts_with('[')) {
    const std::size_t end = authority.find(']');
    if (end == std::string_view::npos) return wrong("a '[' without its ']'");
    url.host = std::string(authority.substr(1, end - 1));
    port = authority.substr(end + 1);
    if (!port.empty() && port.front() != ':') return wrong("only :PORT may follow the address");
    if (!port.empty()) port.remove_prefix(1);
  } else {
    const std::size_t colon = authority.rfind(':');
    url.host = std::string(authority.substr(0, colon));
    if (colon != std::string_view::npos) port = authority.substr(colon + 1);
  }
  if (url.host.empty()) return wrong("it names no host");
  for (const char c : rest) {
    if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f)
      return wrong("it holds a space or control character");
  }
  if (!port.empty()) {
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), url.port);
    if (error != std::errc() || end != port.data() + port.size() || url.port == 0)
      return wrong("its port is no number");
  }
  return url;
}

std::string Url::authority() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

}  // namespace shoal::wire
