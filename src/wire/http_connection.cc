#include "wire/http_connection.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>

#include <fmt/format.h>

#include <random>

#include "core/log.h"
#include "wire/api_error.h"

namespace shoal::wire {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using namespace std::chrono_literals;

namespace {

// What a client may send ahead while its answer is under way; the rest waits in the kernel's buffer.
constexpr std::size_t kMaxPipelinedBytes = 64 * 1024;
constexpr std::size_t kReadBytes = 4096;
// A client answered early (413, 401) may still be sending: its bytes are thrown away for this long, since
// closing with unread bytes makes the kernel reset the connection and the answer may be lost with it.
constexpr auto kLinger = 2s;
constexpr std::size_t kMaxLingerBytes = 32 * 1024 * 1024;
// What one write deadline covers: a client must take this much in that time (2 KB/s at the default 30 s),
// however long the whole answer is.
constexpr std::size_t kWriteSlice = 64 * 1024;

// A body that grows as bytes arrive. Beast's own string_body reserves what Content-Length promises.
struct BoundedBody {
  struct value_type {
    std::string bytes;
    std::atomic<std::size_t>* all_bytes = nullptr;
    std::size_t max_all_bytes = 0;

    value_type() = default;
    value_type(value_type&&) = delete;
    ~value_type() {
      if (all_bytes != nullptr) *all_bytes -= bytes.size();
    }
  };

  class reader {
   public:
    template <bool isRequest, typename Fields>
    reader(http::header<isRequest, Fields>&, value_type& body) : body_(body) {}

    void init(const boost::optional<std::uint64_t>&, error_code& error) { error = {}; }

    template <typename Buffers>
    std::size_t put(const Buffers& buffers, error_code& error) {
      error = {};
      std::size_t size = 0;
      for (auto it = asio::buffer_sequence_begin(buffers); it != asio::buffer_sequence_end(buffers); ++it) {
        const asio::const_buffer piece = *it;
        if (body_.all_bytes->fetch_add(piece.size()) + piece.size() > body_.max_all_bytes) {
          *body_.all_bytes -= piece.size();
          error = http::error::buffer_overflow;
          return size;
        }
        body_.bytes.append(static_cast<const char*>(piece.data()), piece.size());
        size += piece.size();
      }
      return size;
    }

    void finish(error_code& error) { error = {}; }

   private:
    value_type& body_;
  };
};

using Parser = http::request_parser<BoundedBody>;

std::string draw_request_id() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("req-{:016x}", random());
}

bool sane_request_id(std::string_view id) {
  if (id.empty() || id.size() > 128) return false;
  for (const char c : id) {
    if (c <= 0x20 || c == 0x7f) return false;
  }
  return true;
}

std::string_view view(beast::string_view text) { return {text.data(), text.size()}; }

HttpRequest head_of(const Parser& parser, const std::string& remote) {
  HttpRequest request;
  request.method = std::string(view(parser.get().method_string()));
  request.target = std::string(view(parser.get().target()));
  request.remote = remote;
  for (const auto& field : parser.get()) {
    request.headers.emplace_back(to_lower(view(field.name_string())), std::string(view(field.value())));
  }
  split_target(request);
  const auto id = request.header("x-request-id");
  request.request_id = id && sane_request_id(*id) ? std::string(*id) : draw_request_id();
  return request;
}

// What to answer to bytes that are no acceptable request; nothing where the client has simply gone.
std::optional<HttpReply> reply_to(const error_code& error, const HttpServerOptions& options) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return error_reply(431, "invalid_request_error",
                       fmt::format("the request's headers exceed {} bytes", options.max_header_bytes));
  }
  if (error == http::error::body_limit) {
    return error_reply(413, "invalid_request_error",
                       fmt::format("the request's body exceeds {} bytes", options.max_body_bytes));
  }
  // The parser's own errors name what is wrong; end_of_stream and partial_message are a client that left.
  if (error.category() == make_error_code(http::error::bad_method).category() &&
      error != http::error::end_of_stream && error != http::error::partial_message) {
    return error_reply(400, "invalid_request_error", "malformed HTTP request: " + error.message());
  }
  return std::nullopt;
}

HttpReply preflight(const HttpRequest& request, const std::string& allowed,
                    const HttpServerOptions& options) {
  if (options.is_private && options.is_private(request.path)) return {204, "", "", {{"Allow", allowed}}};
  HttpReply reply{204, "", "", {{"Allow", allowed}, {"Access-Control-Allow-Methods", allowed}}};
  if (const auto headers = request.header("access-control-request-headers")) {
    reply.headers.emplace_back("Access-Control-Allow-Headers", std::string(*headers));
  }
  reply.headers.emplace_back("Access-Control-Max-Age", "600");
  return reply;
}

}  // namespace

HttpConnection::HttpConnection(std::shared_ptr<HttpShared> shared, HttpLoop& loop,
                               asio::ip::tcp::socket socket, bool refused)
    : shared_(std::move(shared)),
      loop_(loop),
      socket_(std::move(socket), shared_->options.tls),
      read_timer_(loop.context),
      write_timer_(loop.context),
      answered_(loop.context, asio::steady_timer::time_point::max()),
      refused_(refused) {
  loop_.connections.insert(this);
  error_code ignored;
  socket_.tcp().set_option(asio::ip::tcp::no_delay(true), ignored);
  const auto peer = socket_.tcp().remote_endpoint(ignored);
  if (!ignored) remote_ = fmt::format("{}:{}", peer.address().to_string(), peer.port());
}

HttpConnection::~HttpConnection() {
  if (response_) {
    response_->disconnect();
    --shared_->running;
  }
  loop_.connections.erase(this);
  {
    std::scoped_lock lock(shared_->ended_mutex);
    --(refused_ ? shared_->refusals : shared_->connections);
  }
  shared_->ended.notify_all();
}

void HttpConnection::start() {
  asio::co_spawn(
      loop_.context, [self = shared_from_this()] { return self->serve(); },
      [self = shared_from_this()](std::exception_ptr failure) {
        if (failure) log(LogLevel::kError, "http.connection_failed", "remote={}", self->remote_);
        self->close();
      });
}

void HttpConnection::drain() {
  if (response_) {
    last_ = true;
  } else {
    close();
  }
}

void HttpConnection::close() {
  if (!open_) return;
  open_ = false;
  socket_.close();
  read_timer_.cancel();
  write_timer_.cancel();
  answered_.cancel();
  ++read_generation_;
  ++write_generation_;
  if (response_) {
    const auto response = std::move(response_);
    response_.reset();
    --shared_->running;
    response->disconnect();
  }
}

void HttpConnection::arm(asio::steady_timer& timer, std::uint64_t& generation,
                         std::chrono::milliseconds after) {
  timer.expires_after(after);
  timer.async_wait([self = shared_from_this(), &generation, armed = ++generation](const error_code& error) {
    // An expiry already queued when the timer was set anew belongs to an older generation.
    if (!error && generation == armed) self->close();
  });
}

void HttpConnection::disarm_read() {
  ++read_generation_;
  read_timer_.cancel();
}

asio::awaitable<bool> HttpConnection::secure() {
  if (!socket_.is_tls()) co_return true;
  arm_read(shared_->options.handshake_deadline);
  const error_code error = co_await socket_.handshake();
  disarm_read();
  if (!open_) co_return false;
  if (!error) co_return true;
  log(LogLevel::kInfo, "http.no_tls", "remote={} what={}", remote_, error.message());
  socket_.drop_tls();
  if (is_plain_http(error)) {
    refuse(error_reply(400, "invalid_request_error", "this port speaks HTTPS: begin the URL with https://"),
           {});
    arm_read(kLinger);
    co_await until_answered();
  }
  co_return false;
}

asio::awaitable<void> HttpConnection::serve() {
  const bool ready = co_await secure();
  if (!ready) {
    if (open_) co_await linger();
    close();
    co_return;
  }
  if (refused_) {
    refuse(error_reply(503, "unavailable_error",
                       fmt::format("all {} connections are in use", shared_->options.max_connections),
                       {{"Retry-After", "1"}}),
           {});
  }
  bool first = true;
  while (open_ && !last_) {
    HttpRequest request;
    ResponseState::Traits traits;
    co_await until_first_byte(first);
    first = false;
    if (!open_) break;
    const bool complete = co_await read_request(request, traits);
    if (!open_) break;
    if (complete) {
      dispatch(std::move(request), std::move(traits));
    } else if (!response_) {
      break;
    }
    co_await until_answered();
  }
  if (refused_) co_await until_answered();
  if (open_) co_await linger();
  close();
}

asio::awaitable<void> HttpConnection::until_first_byte(bool first) {
  if (first) {
    arm_read(shared_->options.header_deadline);
    co_return;
  }
  if (buffer_.size() == 0) {
    arm_read(shared_->options.idle_timeout);
    error_code error;
    const std::size_t size = co_await socket_.async_read_some(
        buffer_.prepare(kReadBytes), asio::redirect_error(asio::use_awaitable, error));
    buffer_.commit(size);
    if (error) {
      close();
      co_return;
    }
  }
  arm_read(shared_->options.header_deadline);
}

asio::awaitable<bool> HttpConnection::read_request(HttpRequest& request, ResponseState::Traits& traits) {
  const HttpServerOptions& options = shared_->options;
  Parser parser;
  parser.header_limit(static_cast<std::uint32_t>(options.max_header_bytes));
  parser.body_limit(options.max_body_bytes);
  parser.get().body().all_bytes = &shared_->body_bytes;
  parser.get().body().max_all_bytes = options.max_all_bodies_bytes;

  traits.cors_origin = options.cors_origin;
  traits.max_backlog = options.max_output_backlog;
  traits.keep_alive = false;

  error_code error;
  co_await http::async_read_header(socket_, buffer_, parser,
                                   asio::redirect_error(asio::use_awaitable, error));
  disarm_read();
  if (!open_) co_return false;
  if (error) {
    if (const auto reply = reply_to(error, options)) refuse(*reply, std::move(traits));
    co_return false;
  }

  request = head_of(parser, remote_);
  traits.request_id = request.request_id;
  if (options.is_private && options.is_private(request.path)) traits.cors_origin.clear();
  traits.head_only = request.method == "HEAD";
  traits.chunked = parser.get().version() >= 11;
  if (options.admit && request.method != "OPTIONS") {
    if (const auto reply = options.admit(request)) {
      refuse(*reply, std::move(traits));
      co_return false;
    }
  }
  if (const auto expect = request.header("expect"); expect && !parser.is_done()) {
    if (to_lower(*expect) != "100-continue") {
      refuse(error_reply(417, "invalid_request_error", "the only expectation served is 100-continue"),
             std::move(traits));
      co_return false;
    }
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    arm_read(options.body_deadline);
    co_await asio::async_write(socket_, asio::buffer(kContinue.data(), kContinue.size()),
                               asio::redirect_error(asio::use_awaitable, error));
    if (error) co_return false;
  }
  if (!parser.is_done()) {
    arm_read(options.body_deadline);
    co_await http::async_read(socket_, buffer_, parser, asio::redirect_error(asio::use_awaitable, error));
    disarm_read();
    if (!open_) co_return false;
  }
  if (error == http::error::buffer_overflow) {
    refuse(error_reply(503, "unavailable_error", "too many request bodies are being read at once",
                       {{"Retry-After", "1"}}),
           std::move(traits));
    co_return false;
  }
  if (error) {
    if (const auto reply = reply_to(error, options)) refuse(*reply, std::move(traits));
    co_return false;
  }
  // HTTP/1.0 ends with every answer: its streams can only end so.
  traits.keep_alive = traits.chunked && parser.keep_alive() && !loop_.draining;
  BoundedBody::value_type& body = parser.get().body();
  shared_->body_bytes -= body.bytes.size();
  request.body = std::move(body.bytes);
  body.bytes.clear();
  co_return true;
}

void HttpConnection::dispatch(HttpRequest request, ResponseState::Traits traits) {
  const auto match = shared_->router.find(request.method, request.path);
  const ResponsePtr response = begin_answer(std::move(traits));
  if (match.handler != nullptr) {
    try {
      (*match.handler)(std::move(request), response);
    } catch (const std::exception& failure) {
      log(LogLevel::kError, "http.handler_failed", "id={} what={}", response->request_id(), failure.what());
      response->respond(error_reply(500, "internal_error", "the server failed to handle the request"));
    }
  } else if (request.method == "OPTIONS") {
    response->respond(match.allowed.empty() ? preflight(request, "GET, HEAD, POST, OPTIONS", shared_->options)
                                            : preflight(request, match.allowed, shared_->options));
  } else if (!match.allowed.empty()) {
    response->respond(error_reply(
        405, "invalid_request_error",
        fmt::format("{} does not take {}; it takes {}", request.path, request.method, match.allowed),
        {{"Allow", match.allowed}}));
  } else {
    response->respond(error_reply(404, "invalid_request_error",
                                  fmt::format("there is no {} {}", request.method, request.path)));
  }
  // What the handler has already said goes out before the next read can see that the client closed its side.
  pump();
}

ResponsePtr HttpConnection::begin_answer(ResponseState::Traits traits) {
  auto wake = [weak = weak_from_this(), &context = loop_.context] {
    asio::post(context, [weak] {
      if (const auto self = weak.lock()) self->pump();
    });
  };
  response_ = std::make_shared<ResponseState>(std::move(traits), std::move(wake));
  ++shared_->running;
  return std::make_shared<ResponseWriter>(response_);
}

void HttpConnection::refuse(const HttpReply& reply, ResponseState::Traits traits) {
  if (traits.request_id.empty()) traits.request_id = draw_request_id();
  traits.keep_alive = false;
  last_ = true;
  begin_answer(std::move(traits))->respond(reply);
  pump();
}

void HttpConnection::pump() {
  if (!response_) return;
  if (writing_) {
    if (response_->is_cut()) cut();
    return;
  }
  ResponseState::Batch batch = response_->take();
  if (batch.cut) {
    cut();
    return;
  }
  if (batch.bytes.empty()) {
    if (batch.finished) answered();
    return;
  }
  out_ = std::move(batch.bytes);
  written_ = 0;
  writing_ = true;
  write_slice();
}

void HttpConnection::write_slice() {
  arm(write_timer_, write_generation_, shared_->options.write_deadline);
  const std::size_t slice = std::min(kWriteSlice, out_.size() - written_);
  asio::async_write(socket_, asio::buffer(out_.data() + written_, slice),
                    [self = shared_from_this()](const error_code& error, std::size_t size) {
                      ++self->write_generation_;
                      self->write_timer_.cancel();
                      if (!self->open_) return;
                      if (error) {
                        self->close();
                        return;
                      }
                      self->response_->wrote(size);
                      self->written_ += size;
                      if (self->written_ < self->out_.size()) {
                        self->write_slice();
                        return;
                      }
                      self->writing_ = false;
                      self->pump();
                    });
}

void HttpConnection::cut() {
  log(LogLevel::kInfo, "http.cut", "id={} remote={}", response_->request_id(), remote_);
  close();
}

void HttpConnection::answered() {
  if (!response_->keep_alive()) last_ = true;
  response_->release();
  response_.reset();
  --shared_->running;
  // Ends the read that watched the client; bytes it already took stay in buffer_. Under TLS a read that has
  // just got part of a record goes on for the rest of it: the deadline is for that one.
  arm_read(last_ ? kLinger : shared_->options.idle_timeout);
  socket_.cancel();
  answered_.cancel();
}

asio::awaitable<void> HttpConnection::until_answered() {
  while (open_ && response_) {
    error_code error;
    if (buffer_.size() >= kMaxPipelinedBytes) {
      co_await answered_.async_wait(asio::redirect_error(asio::use_awaitable, error));
      continue;
    }
    const std::size_t size = co_await socket_.async_read_some(
        buffer_.prepare(kReadBytes), asio::redirect_error(asio::use_awaitable, error));
    buffer_.commit(size);
    if (error && error != asio::error::operation_aborted) close();
    // A refused client's bytes are of no use: they are read so that it can read its answer.
    if (last_) buffer_.consume(buffer_.size());
  }
}

asio::awaitable<void> HttpConnection::linger() {
  arm_read(kLinger);
  error_code error = co_await socket_.end_sending();
  if (error) co_return;
  buffer_.consume(buffer_.size());
  std::size_t total = 0;
  while (open_ && total < kMaxLingerBytes) {
    const std::size_t size = co_await socket_.tcp().async_read_some(
        buffer_.prepare(kReadBytes), asio::redirect_error(asio::use_awaitable, error));
    if (error) co_return;
    total += size;
  }
}

}  // namespace shoal::wire
