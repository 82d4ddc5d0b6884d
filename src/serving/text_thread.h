// The text thread: renders templates and encodes prompts, so that a long prompt delays neither sockets nor
// the engine.
//
// Thread-safety: post() from any thread.
// Ownership: owns the thread and the tasks posted to it; the destructor runs out what was accepted.
// Invariants: tasks run one at a time, in order; at most `capacity` wait.

#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace shoal::serving {

class TextThread {
 public:
  using Task = std::function<void()>;

  explicit TextThread(std::size_t capacity);
  ~TextThread();
  TextThread(const TextThread&) = delete;
  TextThread& operator=(const TextThread&) = delete;

  // False where the queue is full: the caller answers 429. Tasks must not throw.
  bool post(Task task);

 private:
  void work();

  const std::size_t capacity_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> tasks_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace shoal::serving
