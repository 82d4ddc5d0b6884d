// Ends what a rank waits for on its executor thread from another thread: its call to another and the others'
// calls while carriers are made, then the carrier's transfers.
//
// Thread-safety: trip() may be called from any thread; the rest belongs to the executor thread.
// Ownership: borrows what it watches, which is released before it goes.
// Invariants: what is watched after trip() ends at once, too, until clear().

#pragma once

#include <mutex>
#include <string>

#include "comm/carrier.h"
#include "comm/socket.h"

namespace shoal::engine {

class Interrupt {
 public:
  void watch(comm::Listener& listener) {
    const std::lock_guard lock(mutex_);
    listener_ = &listener;
    act();
  }
  // Beside the listener: the call at hand, null once there is none.
  void watch_call(const comm::Socket* call) {
    const std::lock_guard lock(mutex_);
    call_ = call;
    act();
  }
  void watch(comm::Carrier& carrier) {
    const std::lock_guard lock(mutex_);
    listener_ = nullptr;
    carrier_ = &carrier;
    act();
  }
  void release() {
    const std::lock_guard lock(mutex_);
    listener_ = nullptr;
    carrier_ = nullptr;
  }
  // The first reason stays.
  void trip(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_ = reason.empty() ? "interrupted" : reason;
    act();
  }
  bool tripped() {
    const std::lock_guard lock(mutex_);
    return !reason_.empty();
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    reason_.clear();
  }

 private:
  void act() {
    if (reason_.empty()) return;
    if (listener_ != nullptr) listener_->shut_down();
    if (call_ != nullptr) call_->shut_down();
    if (carrier_ != nullptr) carrier_->abort(reason_);
  }

  std::mutex mutex_;
  std::string reason_;  // empty: not tripped
  comm::Listener* listener_ = nullptr;
  const comm::Socket* call_ = nullptr;
  comm::Carrier* carrier_ = nullptr;
};

}  // namespace shoal::engine
