#include "serving/text_thread.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/log.h"

namespace shoal::serving {

TextThread::TextThread(std::size_t capacity, std::size_t max_bytes)
    : capacity_(capacity), max_bytes_(max_bytes), thread_([this] { work(); }) {}

TextThread::~TextThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

bool TextThread::post(Task task, std::size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (stop_ || tasks_.size() >= capacity_) return false;
    if (bytes_ != 0 && bytes > max_bytes_ - std::min(max_bytes_, bytes_)) return false;
    tasks_.push_back({std::move(task), bytes});
    ++posted_;
    bytes_ += bytes;
  }
  wake_.notify_one();
  return true;
}

std::uint64_t TextThread::last_posted() const {
  const std::lock_guard lock(mutex_);
  return posted_;
}

void TextThread::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    Entry entry = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    ++current_;  // tasks run in the order of their numbers
    try {
      entry.task();
    } catch (const std::exception& failure) {
      log(LogLevel::kError, "text.task_failed", "what={}", failure.what());
    }
    entry.task = nullptr;  // what it held is released outside the lock
    lock.lock();
    bytes_ -= entry.bytes;
  }
}

}  // namespace shoal::serving
