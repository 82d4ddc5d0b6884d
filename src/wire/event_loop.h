// One thread that runs whatever is posted to it: what the sockets of a server and of its clients live on, and
// the timers beside them.
//
// Thread-safety: post(), call() and on_this_thread() from any thread; stop() from any thread but the loop's
//   own. LoopTimer belongs to the loop's thread.
// Ownership: owns the thread. What is posted and never run is destroyed with the loop, as are the operations
//   that wait for it: whoever lives on a loop must have ended on it before stop(), or expect nothing more.
// Invariants: what is posted runs one at a time, in order.

#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace boost::asio {
class io_context;
}

namespace shoal::wire {

class EventLoop {
 public:
  EventLoop();
  // stop(), where that has not been done.
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  void post(std::function<void()> work);
  // Runs it on the loop and returns when it has run; here and now where this is the loop's thread, or the
  // loop has been stopped.
  void call(const std::function<void()>& work);
  bool on_this_thread() const;
  // What runs now ends, what waits does not begin; the thread is joined.
  void stop();

  // For wire/'s own sockets and timers.
  boost::asio::io_context& context();

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

// Calls back once, after a time; set anew as often as one likes. Its end calls it off.
class LoopTimer {
 public:
  explicit LoopTimer(EventLoop& loop);
  ~LoopTimer();
  LoopTimer(LoopTimer&&) noexcept;
  LoopTimer& operator=(LoopTimer&&) noexcept;

  void start(std::chrono::milliseconds after, std::function<void()> callback);
  void cancel();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace shoal::wire
