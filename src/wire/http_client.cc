#include "wire/http_client.h"

#include <fmt/format.h>

#include <future>
#include <mutex>
#include <utility>
#include <vector>

#include "wire/api_error.h"
#include "wire/event_loop.h"
#include "wire/http_client_connection.h"
#include "wire/tls_context.h"

namespace shoal::wire {

namespace {

class Exchange final : public HttpExchange {
 public:
  Exchange(EventLoop& loop, std::weak_ptr<ClientPool> pool, std::weak_ptr<ClientCall> call)
      : loop_(loop), pool_(std::move(pool)), call_(std::move(call)) {}

  void cancel() override {
    on_loop([](ClientCall& call) {
      if (std::exchange(call.over, true)) return;
      call.callbacks = {};
      if (const auto connection = call.connection.lock()) connection->cancel_call();
    });
  }
  void pause() override { set_paused(true); }
  void resume() override { set_paused(false); }

 private:
  void set_paused(bool paused) {
    on_loop([paused](ClientCall& call) {
      if (call.over || std::exchange(call.paused, paused) == paused) return;
      if (const auto connection = call.connection.lock()) connection->set_paused(paused);
    });
  }

  template <typename F>
  void on_loop(F&& change) {
    const auto run = [weak = call_, change] {
      if (const auto call = weak.lock()) change(*call);
    };
    if (pool_.expired()) return;  // the client has gone, and its loop perhaps with it
    loop_.on_this_thread() ? run() : loop_.post(run);
  }

  EventLoop& loop_;
  const std::weak_ptr<ClientPool> pool_;
  const std::weak_ptr<ClientCall> call_;
};

}  // namespace

struct HttpClient::Impl {
  explicit Impl(HttpClientOptions options)
      : tls(std::move(options.tls)), own(options.loop == nullptr ? std::make_unique<EventLoop>() : nullptr) {
    loop = own != nullptr ? own.get() : options.loop;
    pool->context = &loop->context();
    pool->max_idle = options.max_idle;
    pool->keep_idle = options.keep_idle;
  }
  ~Impl() {
    if (own != nullptr) own->stop();
    loop->call([this] {
      pool->closed = true;
      // Ending one lets go of it: the set changes.
      std::vector<std::shared_ptr<ClientConnection>> open;
      for (ClientConnection* each : pool->all) {
        if (auto connection = each->weak_from_this().lock()) open.push_back(std::move(connection));
      }
      for (const auto& connection : open) connection->abandon();
      pool->idle.clear();
    });
  }

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
  std::shared_ptr<ClientPool> pool = std::make_shared<ClientPool>();
  std::unique_ptr<EventLoop> own;  // after the pool: what it still holds refers to that
  EventLoop* loop = nullptr;
};

HttpClient::HttpClient(HttpClientOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}

HttpClient::HttpClient(std::shared_ptr<TlsContext> tls)
    : HttpClient(HttpClientOptions{.tls = std::move(tls)}) {}

HttpClient::~HttpClient() = default;

std::size_t HttpClient::open_connections() const { return impl_->pool->open; }

std::shared_ptr<HttpExchange> HttpClient::start(HttpCall call, Callbacks callbacks) {
  std::shared_ptr<TlsContext> tls;
  Status untrusted;
  if (call.url.tls) {
    auto trusted = impl_->trusted();
    if (trusted.ok()) {
      tls = *std::move(trusted);
    } else {
      untrusted = trusted.error();
    }
  }
  auto running = std::make_shared<ClientCall>(std::move(call), std::move(callbacks), std::move(tls));
  auto begin = [pool = impl_->pool, running, untrusted] {
    if (pool->closed) return;
    if (untrusted.ok()) {
      ClientConnection::begin(pool, running);
    } else if (!std::exchange(running->over, true) && running->callbacks.on_end) {
      running->callbacks.on_end(untrusted);
    }
  };
  // Posted where it must not call back before it has returned.
  if (impl_->loop->on_this_thread() && untrusted.ok()) {
    begin();
  } else {
    impl_->loop->post(std::move(begin));
  }
  return std::make_shared<Exchange>(*impl_->loop, impl_->pool, running);
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

}  // namespace shoal::wire
