#include "handover/thread_group.h"

#include <exception>
#include <system_error>
#include <utility>

#include "core/log.h"

namespace shoal::handover {

bool ThreadGroup::run(std::function<void()> work) {
  std::unique_lock lock(mutex_);
  if (stopping_) return false;
  reap(lock);
  if (stopping_) return false;
  Worker& worker = workers_.emplace_back();
  try {
    worker.thread = std::thread([this, &worker, work = std::move(work)]() mutable {
      try {
        work();
      } catch (const std::exception& error) {
        log(LogLevel::kError, "handover.failed", "what=\"{}\"", error.what());
      }
      // What it holds goes before it counts as ended.
      work = {};
      const std::lock_guard done(mutex_);
      worker.done = true;
    });
  } catch (const std::system_error& error) {
    workers_.pop_back();
    log(LogLevel::kWarn, "handover.no_thread", "error=\"{}\"", error.what());
    return false;
  }
  return true;
}

// Threads that have ended, or are about to: joining them waits for nothing.
void ThreadGroup::reap(std::unique_lock<std::mutex>& lock) {
  std::list<Worker> done;
  for (auto it = workers_.begin(); it != workers_.end();) {
    const auto at = it++;
    if (at->done) done.splice(done.end(), workers_, at);
  }
  lock.unlock();
  for (Worker& worker : done) worker.thread.join();
  lock.lock();
}

void ThreadGroup::stop() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  while (!workers_.empty()) {
    std::list<Worker> last;
    last.splice(last.end(), workers_, workers_.begin());
    lock.unlock();
    last.front().thread.join();
    lock.lock();
  }
}

}  // namespace shoal::handover
