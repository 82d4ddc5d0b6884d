// The text thread: renders templates and encodes prompts, so that a long prompt delays neither sockets nor
// the engine.
//
// Thread-safety: post() from any thread.
// Ownership: owns the thread and the tasks posted to it; the destructor runs out what was accepted.
// Invariants: tasks run one at a time, in order; at most `capacity` wait, and what they hold stays below
//   `max_bytes`, but for one task that alone is larger. A task that throws is logged and dropped.

#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace shoal::serving {

class TextThread {
 public:
  using Task = std::function<void()>;

  // Bodies of 16 MiB in a queue of hundreds would hold gigabytes.
  static constexpr std::size_t kMaxBytes = 256U << 20;

  explicit TextThread(std::size_t capacity, std::size_t max_bytes = kMaxBytes);
  ~TextThread();
  TextThread(const TextThread&) = delete;
  TextThread& operator=(const TextThread&) = delete;

  // bytes: what the task holds. False where the queue is full: the caller answers 429.
  bool post(Task task, std::size_t bytes = 0);

  // Tasks are numbered from 1 as they are accepted. The last number given; any thread.
  std::uint64_t last_posted() const;
  // The number of the task that asks; on this thread alone.
  std::uint64_t current() const { return current_; }

 private:
  struct Entry {
    Task task;
    std::size_t bytes = 0;
  };

  void work();

  const std::size_t capacity_;
  const std::size_t max_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Entry> tasks_;
  std::size_t bytes_ = 0;  // of those waiting and of the one that runs
  std::uint64_t posted_ = 0;
  std::uint64_t current_ = 0;  // of the thread itself
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace shoal::serving
