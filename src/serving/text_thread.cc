#include "serving/text_thread.h"

#include <utility>

namespace shoal::serving {

TextThread::TextThread(std::size_t capacity) : capacity_(capacity), thread_([this] { work(); }) {}

TextThread::~TextThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

bool TextThread::post(Task task) {
  {
    const std::lock_guard lock(mutex_);
    if (stop_ || tasks_.size() >= capacity_) return false;
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
  return true;
}

void TextThread::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;  // what it held is released outside the lock
    lock.lock();
  }
}

}  // namespace shoal::serving
