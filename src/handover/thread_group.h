// Threads that come and go, and are joined together.
//
// Thread-safety: every function may be called from any thread, stop() not from a thread of the group.
// Ownership: owns its threads; all have ended when stop() has returned.

#pragma once

#include <functional>
#include <list>
#include <mutex>
#include <thread>

namespace shoal::handover {

class ThreadGroup {
 public:
  ThreadGroup() = default;
  ~ThreadGroup() { stop(); }
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

  // False where no thread could be started, or stop() has been called. What work throws is logged.
  bool run(std::function<void()> work);
  // Waits for all: whoever calls it has ended what they wait for.
  void stop();

 private:
  struct Worker {
    std::thread thread;
    bool done = false;
  };
  void reap(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::list<Worker> workers_;
  bool stopping_ = false;
};

}  // namespace shoal::handover
