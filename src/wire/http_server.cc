#include <utility>

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_future.hpp>

#include <fmt/format.h>

#include <condition_variable>
#include <future>
#include <thread>
#include <vector>

#include "core/log.h"
#include "wire/event_loop.h"
#include "wire/http_connection.h"
#include "wire/http_server.h"

namespace shoal::wire {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = boost::asio::ip::tcp;

namespace {

// Connections being told that there is no room; more than these are closed without a word.
constexpr int kMaxRefusals = 64;
// Out of file descriptors: accepting again at once would spin.
constexpr std::chrono::milliseconds kAcceptPause{100};

std::string cannot_listen(const std::string& host, std::uint16_t port, const error_code& error) {
  if (error == asio::error::address_in_use) {
    return fmt::format("cannot listen on {}:{}: the port is in use; choose another with --port", host, port);
  }
  return fmt::format("cannot listen on {}:{}: {}", host, port, error.message());
}

}  // namespace

struct HttpServer::Impl {
  explicit Impl(HttpServerOptions options) {
    shared->options = std::move(options);
    if (shared->options.loop != nullptr) {
      loops.push_back(std::make_unique<HttpLoop>(shared->options.loop->context()));
      return;
    }
    const int count = shared->options.io_threads < 1 ? 1 : shared->options.io_threads;
    for (int i = 0; i < count; ++i) loops.push_back(std::make_unique<HttpLoop>());
  }

  Expected<std::uint16_t> open(const std::string& host, std::uint16_t port);
  void accept();
  void admit(tcp::socket socket, std::size_t loop, bool refused);
  void accept_failed();
  // On every loop: ends the connections, now or after their answers. Returns when every loop has seen to it;
  // what was accepted earlier was posted earlier, so no connection slips past.
  void end_connections(bool now);
  bool wait_until_empty(std::chrono::milliseconds patience);

  std::shared_ptr<HttpShared> shared = std::make_shared<HttpShared>();
  std::vector<std::unique_ptr<HttpLoop>> loops;
  std::vector<asio::executor_work_guard<asio::io_context::executor_type>> guards;
  std::vector<std::thread> threads;
  std::unique_ptr<tcp::acceptor> acceptor;  // on loop 0, as is the timer
  std::unique_ptr<asio::steady_timer> accept_timer;
  std::size_t next_loop = 0;
  std::mutex stop_mutex;  // one shutdown at a time
  bool stopped = false;
};

HttpServer::HttpServer(HttpServerOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}

HttpServer::~HttpServer() { shutdown(std::chrono::milliseconds(0)); }

void HttpServer::route(std::string_view method, std::string_view path, HttpHandler handler) {
  impl_->shared->router.add(method, path, std::move(handler));
}

int HttpServer::open_connections() const { return impl_->shared->connections; }
int HttpServer::running_requests() const { return impl_->shared->running; }

Expected<std::uint16_t> HttpServer::listen(const std::string& host, std::uint16_t port) {
  return impl_->open(host, port);
}

Expected<std::uint16_t> HttpServer::Impl::open(const std::string& host, std::uint16_t port) {
  if (acceptor) return Status(ErrorCode::kInternal, "this server listens already");
  error_code error;
  asio::io_context& context = loops[0]->context;
  tcp::resolver resolver(context);
  const auto found = resolver.resolve(host, std::to_string(port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error || found.empty()) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("cannot listen on {}: no such address on this machine", host));
  }
  const tcp::endpoint endpoint = *found.begin();
  auto opened = std::make_unique<tcp::acceptor>(context);
  opened->open(endpoint.protocol(), error);
  if (!error) opened->set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) opened->bind(endpoint, error);
  if (!error) opened->listen(asio::socket_base::max_listen_connections, error);
  if (error) return Status(ErrorCode::kIo, cannot_listen(host, port, error));
  const std::uint16_t bound = opened->local_endpoint(error).port();
  acceptor = std::move(opened);
  accept_timer = std::make_unique<asio::steady_timer>(context);
  asio::post(context, [this] { accept(); });
  for (const auto& loop : loops) {
    if (loop->own == nullptr) break;
    guards.push_back(asio::make_work_guard(loop->context));
    threads.emplace_back([&context = loop->context] { context.run(); });
  }
  return bound;
}

void HttpServer::Impl::accept() {
  const std::size_t loop = next_loop++ % loops.size();
  acceptor->async_accept(loops[loop]->context, [this, loop](const error_code& error, tcp::socket socket) {
    if (error == asio::error::operation_aborted || !acceptor->is_open()) return;
    if (error) {
      accept_failed();
      return;
    }
    const bool full = ++shared->connections > shared->options.max_connections;
    if (full) --shared->connections;
    if (!full || ++shared->refusals <= kMaxRefusals) {
      admit(std::move(socket), loop, full);
    } else {
      --shared->refusals;
    }
    accept();
  });
}

void HttpServer::Impl::admit(tcp::socket socket, std::size_t loop, bool refused) {
  asio::post(loops[loop]->context, [this, loop, refused, socket = std::move(socket)]() mutable {
    const auto connection =
        std::make_shared<HttpConnection>(shared, *loops[loop], std::move(socket), refused);
    if (loops[loop]->draining) {
      connection->close();
    } else {
      connection->start();
    }
  });
}

void HttpServer::Impl::accept_failed() {
  log(LogLevel::kWarn, "http.accept_failed", "connections={}", shared->connections.load());
  accept_timer->expires_after(kAcceptPause);
  accept_timer->async_wait([this](const error_code& error) {
    if (!error && acceptor->is_open()) accept();
  });
}

bool HttpServer::shutdown(std::chrono::milliseconds drain) {
  Impl& impl = *impl_;
  std::scoped_lock lock(impl.stop_mutex);
  if (impl.stopped || impl.acceptor == nullptr) return true;
  impl.stopped = true;

  asio::post(impl.loops[0]->context, asio::use_future([&impl] {
               error_code ignored;
               impl.acceptor->close(ignored);
               impl.accept_timer->cancel();
             }))
      .wait();
  impl.end_connections(false);
  const bool drained = impl.wait_until_empty(drain);
  if (!drained) {
    impl.end_connections(true);
    // Closing takes no client's help: only a handler that blocks its I/O thread can make this wait.
    impl.wait_until_empty(std::chrono::hours(1));
  }
  impl.guards.clear();
  for (std::thread& thread : impl.threads) thread.join();
  return drained;
}

void HttpServer::Impl::end_connections(bool now) {
  const auto end = [now](HttpLoop& loop) {
    loop.draining = true;
    const std::vector<HttpConnection*> connections(loop.connections.begin(), loop.connections.end());
    for (HttpConnection* connection : connections) {
      // Closing one may run a user's callback and frees others only through their own events, never here.
      now ? connection->close() : connection->drain();
    }
  };
  std::vector<std::future<void>> seen;
  for (const auto& loop : loops) {
    seen.push_back(asio::post(loop->context, asio::use_future([&end, &loop = *loop] { end(loop); })));
  }
  for (const auto& done : seen) done.wait();
}

bool HttpServer::Impl::wait_until_empty(std::chrono::milliseconds patience) {
  std::unique_lock lock(shared->ended_mutex);
  return shared->ended.wait_for(lock, patience,
                                [this] { return shared->connections == 0 && shared->refusals == 0; });
}

}  // namespace shoal::wire
