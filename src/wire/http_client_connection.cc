#include "wire/http_client_connection.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/write.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "wire/tls_context.h"

namespace shoal::wire {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using tcp = boost::asio::ip::tcp;

namespace {

// A token's event is 300 bytes; answers given whole are a few KiB.
constexpr std::size_t kReadBytes = 8 * 1024;
constexpr std::uint32_t kMaxHeaderBytes = 64 * 1024;

std::string head_of(const HttpCall& call, bool keep) {
  std::string text;
  text.reserve(256);
  fmt::format_to(std::back_inserter(text), "{} {} HTTP/1.1\r\nHost: {}\r\nConnection: {}\r\n", call.method,
                 call.url.path.empty() ? "/" : call.url.path, call.url.authority(),
                 keep ? "keep-alive" : "close");
  for (const auto& [name, value] : call.headers) {
    text += name;
    text += ": ";
    text += value;
    text += "\r\n";
  }
  if (!call.body.empty() || call.method == "POST")
    fmt::format_to(std::back_inserter(text), "Content-Length: {}\r\n", call.body.size());
  text += "\r\n";
  return text;
}

template <typename Parser>
HeaderList headers_of(const Parser& parser) {
  HeaderList headers;
  for (const auto& field : parser.get()) {
    const auto name = field.name_string();
    const auto value = field.value();
    headers.emplace_back(to_lower({name.data(), name.size()}), std::string(value.data(), value.size()));
  }
  return headers;
}

std::string key_of(const Url& url) { return (url.tls ? "s" : "p") + url.authority(); }

}  // namespace

void SinkBody::reader::init(const boost::optional<std::uint64_t>&, error_code& error) {
  error = {};
  body_.connection->head_has_come();
  if (body_.connection->call_ == nullptr) error = asio::error::operation_aborted;
}

void SinkBody::reader::take(std::string_view bytes, error_code& error) {
  error = {};
  if (!body_.connection->data_has_come(bytes)) error = asio::error::operation_aborted;
}

ClientConnection::ClientConnection(std::shared_ptr<ClientPool> pool, std::string key,
                                   std::shared_ptr<TlsContext> tls)
    : pool_(std::move(pool)),
      key_(std::move(key)),
      tls_(std::move(tls)),
      socket_(tcp::socket(*pool_->context), tls_),
      resolver_(*pool_->context),
      timer_(*pool_->context) {
  pool_->all.insert(this);
  ++pool_->open;
}

ClientConnection::~ClientConnection() {
  pool_->all.erase(this);
  --pool_->open;
}

void ClientConnection::begin(const std::shared_ptr<ClientPool>& pool, std::shared_ptr<ClientCall> call) {
  if (call->over) return;
  const std::string key = key_of(call->call.url);
  if (pool->max_idle > 0 && !call->sent_before) {
    const auto kept = pool->idle.find(key);
    while (kept != pool->idle.end() && !kept->second.empty()) {
      const std::shared_ptr<ClientConnection> connection = std::move(kept->second.front());
      kept->second.pop_front();
      if (!connection->open_ || connection->tls_ != call->tls) continue;
      connection->kept_ = true;
      connection->take(std::move(call));
      connection->send();
      return;
    }
  }
  const auto connection = std::make_shared<ClientConnection>(pool, key, call->tls);
  connection->take(std::move(call));
  connection->connect();
}

void ClientConnection::take(std::shared_ptr<ClientCall> call) {
  call_ = std::move(call);
  call_->connection = weak_from_this();
  any_byte_ = false;
}

void ClientConnection::connect() {
  set_wait(call_->call.connect_timeout);
  const Url& url = call_->call.url;
  error_code error;
  const auto address = asio::ip::make_address(url.host, error);
  auto done = [self = shared_from_this()](const error_code& failed, auto&&...) {
    if (self->call_ == nullptr) return;
    failed ? self->fail(failed) : self->connected();
  };
  if (!error) {
    socket_.tcp().async_connect(tcp::endpoint(address, url.port), done);
    return;
  }
  resolver_.async_resolve(
      url.host, std::to_string(url.port),
      [self = shared_from_this(), done](const error_code& failed, const tcp::resolver::results_type& found) {
        if (self->call_ == nullptr) return;
        if (failed) {
          self->fail(failed);
        } else {
          asio::async_connect(self->socket_.tcp(), found, done);
        }
      });
}

void ClientConnection::connected() {
  error_code ignored;
  socket_.tcp().set_option(tcp::no_delay(true), ignored);
  if (tls_ == nullptr) {
    send();
    return;
  }
  const Url& url = call_->call.url;
  if (!expect_host(socket_.native_tls(), url.host)) {
    end({ErrorCode::kInvalidArgument,
         fmt::format("cannot trust {}: no certificate can be for that name", url.authority())});
    return;
  }
  doing_ = "cannot agree on TLS with";
  set_wait(call_->call.connect_timeout);
  socket_.handshake_as_client([self = shared_from_this()](const error_code& error) {
    if (self->call_ == nullptr) return;
    const std::string authority = self->call_->call.url.authority();
    const std::string untrusted = error ? untrusted_because(self->socket_.native_tls()) : "";
    if (!untrusted.empty()) {
      self->end({ErrorCode::kUnavailable, fmt::format("cannot trust {}: {}", authority, untrusted)});
    } else if (is_not_tls(error)) {
      self->end({ErrorCode::kUnavailable, fmt::format("{} does not speak TLS: try http://", authority)});
    } else if (error) {
      self->fail(error);
    } else {
      self->send();
    }
  });
}

void ClientConnection::send() {
  doing_ = "cannot send to";
  begin_answer();
  head_ = head_of(call_->call, pool_->max_idle > 0);
  set_wait(call_->call.idle_timeout);
  const std::array<asio::const_buffer, 2> buffers{asio::buffer(head_), asio::buffer(call_->call.body)};
  writing_ = true;
  // The call is held until the bytes are out: they are its own.
  asio::async_write(socket_, buffers,
                    [self = shared_from_this(), call = call_](const error_code& error, std::size_t) {
                      self->writing_ = false;
                      if (self->call_ != call) return;
                      if (error) {
                        // An answer may explain why the server stopped to read: the read says.
                        if (!self->reading_) self->fail(error);
                        return;
                      }
                      if (!self->any_byte_) self->doing_ = "no answer from";
                      self->set_wait(call->call.idle_timeout);
                    });
  read();
}

void ClientConnection::begin_answer() {
  parser_.emplace();
  parser_->get().body().connection = this;
  // Beast 1.74 takes "no limit" (boost::none) for a limit below every Content-Length.
  parser_->body_limit(std::numeric_limits<std::uint64_t>::max());
  parser_->header_limit(kMaxHeaderBytes);
  if (call_->call.method == "HEAD") parser_->skip(true);
  head_seen_ = false;
}

void ClientConnection::read() {
  if (reading_ || !open_ || (call_ != nullptr && call_->paused)) return;
  reading_ = true;
  socket_.async_read_some(in_.prepare(kReadBytes),
                          [self = shared_from_this()](const error_code& error, std::size_t size) {
                            self->reading_ = false;
                            if (self->open_) self->read_done(error, size);
                          });
}

void ClientConnection::read_done(const error_code& error, std::size_t size) {
  in_.commit(size);
  if (call_ == nullptr) {  // idle: the server has gone, or says what nobody asked for
    close();
    return;
  }
  if (size > 0) {
    any_byte_ = true;
    set_wait(call_->call.idle_timeout);
    if (!parse()) return;
  }
  if (!error) {
    read();
    return;
  }
  error_code ended;
  if (error == asio::error::eof || error == asio::ssl::error::stream_truncated) {
    if (any_byte_) parser_->put_eof(ended);
    if (any_byte_ && !ended && parser_->is_done()) {
      answered();
      return;
    }
  }
  if (kept_ && !any_byte_ && !call_->sent_before) {
    // The server had closed the kept connection: the call goes to a new one, once.
    const std::shared_ptr<ClientCall> again = std::move(call_);
    call_ = nullptr;
    again->sent_before = true;
    close();
    begin(pool_, again);
    return;
  }
  fail(error == asio::error::eof && ended ? ended : error);
}

bool ClientConnection::parse() {
  const auto self = shared_from_this();  // a callback may let go of everything else
  const std::shared_ptr<ClientCall> call = call_;
  while (in_.size() > 0) {
    error_code error;
    parsing_ = true;
    const std::size_t used = parser_->put(in_.data(), error);
    // Where there is no body nobody else has asked for it.
    if (parser_->is_header_done()) head_has_come();
    parsing_ = false;
    in_.consume(used);
    if (call_ != call) {  // cancelled or cut from inside
      close();
      return false;
    }
    if (error == http::error::need_more) return true;
    if (error == asio::error::operation_aborted) {
      end({ErrorCode::kCancelled, "the call was cut by its caller"});
      return false;
    }
    if (error) {
      fail(error);
      return false;
    }
    if (!parser_->is_done()) continue;
    if (parser_->get().result_int() >= 200) {
      answered();
      return false;
    }
    begin_answer();  // "100 Continue" and its like: the answer proper follows
  }
  return true;
}

void ClientConnection::head_has_come() {
  if (std::exchange(head_seen_, true) || call_ == nullptr) return;
  doing_ = "the answer broke off from";
  const auto call = call_;
  const auto status = static_cast<int>(parser_->get().result_int());
  if (status >= 200 && call->callbacks.on_head) call->callbacks.on_head(status, headers_of(*parser_));
}

bool ClientConnection::data_has_come(std::string_view bytes) {
  const std::shared_ptr<ClientCall> call = call_;
  if (call == nullptr) return false;
  return !call->callbacks.on_data || call->callbacks.on_data(bytes);
}

void ClientConnection::answered() {
  // An answer that came before all of its call was out: what is left to send must not run into the next.
  const bool keeps =
      pool_->max_idle > 0 && !pool_->closed && !writing_ && parser_->keep_alive() && in_.size() == 0;
  const std::shared_ptr<ClientCall> call = std::move(call_);
  call_ = nullptr;
  if (keeps) {
    keep_or_close();
  } else {
    close();
  }
  if (call->over || pool_->closed) return;
  call->over = true;
  const auto on_end = std::move(call->callbacks.on_end);
  call->callbacks = {};
  if (on_end) on_end(Status());
}

void ClientConnection::keep_or_close() {
  auto& idle = pool_->idle[key_];
  if (idle.size() >= pool_->max_idle) {
    close();
    return;
  }
  parser_.reset();
  head_.clear();
  idle.push_front(shared_from_this());
  set_deadline(now() + pool_->keep_idle);
  read();
}

void ClientConnection::set_wait(std::chrono::milliseconds patience) {
  set_deadline(std::min(now() + patience, call_->begun + call_->call.deadline));
}

void ClientConnection::set_deadline(TimePoint at) {
  deadline_ = at;
  // A later deadline is found when the timer looks; only an earlier one needs the timer set anew.
  if (!timer_armed_ || at < armed_for_) arm_timer();
}

void ClientConnection::arm_timer() {
  timer_armed_ = true;
  armed_for_ = deadline_;
  timer_.expires_at(deadline_);
  timer_.async_wait([weak = weak_from_this()](const error_code& error) {
    const auto self = weak.lock();
    if (error || self == nullptr || !self->open_) return;
    if (now() < self->deadline_) {
      self->arm_timer();
      return;
    }
    self->timer_armed_ = false;
    self->call_ != nullptr ? self->fail(asio::error::timed_out) : self->close();
  });
}

void ClientConnection::fail(const error_code& error) {
  const bool late = error == asio::error::timed_out && now() >= deadline_;
  end({late ? ErrorCode::kDeadline : ErrorCode::kUnavailable,
       fmt::format("{} {}: {}", doing_, call_->call.url.authority(),
                   late ? "no answer in time" : error.message())});
}

void ClientConnection::end(Status status) {
  const std::shared_ptr<ClientCall> call = std::move(call_);
  call_ = nullptr;
  close();
  if (call == nullptr || call->over || pool_->closed) return;
  call->over = true;
  const auto on_end = std::move(call->callbacks.on_end);
  call->callbacks = {};
  if (on_end) on_end(status);
}

void ClientConnection::cancel_call() {
  const std::shared_ptr<ClientCall> call = std::move(call_);
  call_ = nullptr;
  // A parser that is being fed must see its end first: parse() closes then.
  if (!parsing_) close();
}

void ClientConnection::set_paused(bool paused) {
  if (call_ == nullptr) return;
  // Who pauses waits for somebody else, who has deadlines of his own.
  set_deadline(call_->begun + call_->call.deadline);
  if (paused) return;
  set_wait(call_->call.idle_timeout);
  read();
}

void ClientConnection::abandon() {
  call_ = nullptr;
  close();
}

void ClientConnection::close() {
  if (!open_) return;
  open_ = false;
  const auto kept = pool_->idle.find(key_);
  if (kept != pool_->idle.end()) {
    std::erase_if(kept->second, [this](const auto& each) { return each.get() == this; });
    if (kept->second.empty()) pool_->idle.erase(kept);
  }
  socket_.close();
  resolver_.cancel();
  timer_.cancel();
}

}  // namespace shoal::wire
