// Between who moves bytes of pages and who gives the pages away.
//
// Thread-safety: any thread; several may move at once.
// Invariants: once close() has returned no byte is moved any more.

#pragma once

#include <atomic>
#include <mutex>
#include <shared_mutex>

#include "core/expected.h"

namespace shoal::handover {

class PageGuard {
 public:
  // Waits for the pieces that are being moved: at most 1 MiB each, some 200 us.
  void close() {
    // First: nobody begins a piece while this waits for those that are under way.
    closed_.store(true);
    const std::unique_lock lock(mutex_);
  }
  // move(): on the bytes of pages; kCancelled once closed.
  template <typename F>
  auto with_pages(F&& move) -> decltype(move()) {
    const std::shared_lock lock(mutex_);
    if (closed_.load()) return Status(ErrorCode::kCancelled, "the room is closed");
    return move();
  }

 private:
  std::shared_mutex mutex_;
  std::atomic<bool> closed_{false};
};

}  // namespace shoal::handover
