#include "wire/event_loop.h"

#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <atomic>
#include <future>
#include <mutex>
#include <thread>

namespace shoal::wire {

namespace asio = boost::asio;
using boost::system::error_code;

struct EventLoop::Impl {
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard = asio::make_work_guard(context);
  std::mutex stop_mutex;
  std::atomic<bool> stopped{false};
  std::thread thread{[this] { context.run(); }};
};

EventLoop::EventLoop() : impl_(std::make_unique<Impl>()) {}

EventLoop::~EventLoop() { stop(); }

asio::io_context& EventLoop::context() { return impl_->context; }

void EventLoop::post(std::function<void()> work) { asio::post(impl_->context, std::move(work)); }

bool EventLoop::on_this_thread() const { return impl_->thread.get_id() == std::this_thread::get_id(); }

void EventLoop::call(const std::function<void()>& work) {
  if (impl_->stopped || on_this_thread()) {
    work();
    return;
  }
  std::promise<void> done;
  asio::post(impl_->context, [&] {
    work();
    done.set_value();
  });
  done.get_future().wait();
}

void EventLoop::stop() {
  const std::scoped_lock lock(impl_->stop_mutex);
  if (impl_->stopped) return;
  impl_->guard.reset();
  impl_->context.stop();
  impl_->thread.join();
  impl_->stopped = true;
}

struct LoopTimer::Impl {
  explicit Impl(asio::io_context& context) : timer(context) {}
  asio::steady_timer timer;
  std::uint64_t generation = 0;
  std::function<void()> callback;
};

LoopTimer::LoopTimer(EventLoop& loop) : impl_(std::make_shared<Impl>(loop.context())) {}
LoopTimer::LoopTimer(LoopTimer&&) noexcept = default;
LoopTimer& LoopTimer::operator=(LoopTimer&& other) noexcept {
  if (this != &other) {
    if (impl_ != nullptr) cancel();
    impl_ = std::move(other.impl_);
  }
  return *this;
}
LoopTimer::~LoopTimer() {
  if (impl_ != nullptr) cancel();
}

void LoopTimer::start(std::chrono::milliseconds after, std::function<void()> callback) {
  impl_->callback = std::move(callback);
  impl_->timer.expires_after(after);
  impl_->timer.async_wait(
      [weak = std::weak_ptr(impl_), armed = ++impl_->generation](const error_code& error) {
        const auto self = weak.lock();
        // An expiry already queued when the timer was set anew belongs to an older generation.
        if (error || self == nullptr || self->generation != armed) return;
        const std::function<void()> run = std::move(self->callback);
        self->callback = nullptr;
        run();
      });
}

void LoopTimer::cancel() {
  ++impl_->generation;
  impl_->callback = nullptr;
  impl_->timer.cancel();
}

}  // namespace shoal::wire
