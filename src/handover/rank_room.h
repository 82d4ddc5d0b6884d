// One room on one rank: the gate to its pages, and the connections that move their bytes.
//
// Thread-safety: any thread.
// Ownership: shared by the rank's port and the threads of the connections; links are borrowed while
//   they are attached.
// Invariants:
//   1. Once close() or free() has returned no byte of a page is touched for the room.
//   2. A link is woken and aborted only while it is attached.

#pragma once

#include <mutex>
#include <set>
#include <string_view>

#include "core/clock.h"
#include "handover/page_guard.h"
#include "handover/room_link.h"
#include "handover/room_table.h"

namespace shoal::handover {

class RankRoom {
 public:
  explicit RankRoom(RoomId id) : id_(id) {}
  virtual ~RankRoom() = default;
  RankRoom(const RankRoom&) = delete;
  RankRoom& operator=(const RankRoom&) = delete;

  RoomId id() const { return id_; }
  PageGuard& guard() { return guard_; }

  // The link of the room while it lives.
  class Attached {
   public:
    Attached(RankRoom& room, RoomLink& link) : room_(room), link_(link) {
      const std::lock_guard lock(room_.mutex_);
      room_.links_.insert(&link_);
      if (room_.closed_) link_.abort("the room is over");
    }
    ~Attached() {
      const std::lock_guard lock(room_.mutex_);
      room_.links_.erase(&link_);
    }
    Attached(const Attached&) = delete;
    Attached& operator=(const Attached&) = delete;

   private:
    RankRoom& room_;
    RoomLink& link_;
  };
  // It ends, for this reason, and so do its connections.
  void close(std::string_view why) {
    guard_.close();
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (RoomLink* link : links_) link->abort(why);
  }
  // It has ended well: connections that are about to end do so by themselves.
  void free() {
    guard_.close();
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (RoomLink* link : links_) link->wake();
  }
  bool closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }
  void wake_links() {
    const std::lock_guard lock(mutex_);
    for (RoomLink* link : links_) link->wake();
  }
  // Bytes have moved: true where the head is to hear of it, once a second at most.
  bool moves() {
    const std::lock_guard lock(mutex_);
    const TimePoint at = now();
    if (told_ != TimePoint{} && at - told_ < std::chrono::seconds(1)) return false;
    told_ = at;
    return true;
  }

 private:
  const RoomId id_;
  PageGuard guard_;
  mutable std::mutex mutex_;
  std::set<RoomLink*> links_;
  bool closed_ = false;
  TimePoint told_{};
};

}  // namespace shoal::handover
