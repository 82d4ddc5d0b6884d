// The rooms of a worker while they live, at its head: who is told when one ends, the threads that their
// connections run on, the clock that ends those past their deadlines.
//
// Thread-safety: every function may be called from any thread.
// Ownership: shared by all rooms, so that it outlives them. A Room is shared by the engine's request and the
//   thread of its connection. stop() must come while the engine lives: afterwards nothing calls it.
// Invariants:
//   1. A room's end is told once: to the engine where the connection or the clock ended it, to the other
//      worker where the engine did.
//   2. After Room::close() has returned every rank has been told to touch no byte of the room's pages any
//      more, and each does so before it looks at a later step plan, or a later room.
//   3. Threads: one a connection, one for the clock; all have ended when stop() returns.

#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>

#include "core/expected.h"
#include "core/ids.h"
#include "engine/engine.h"
#include "handover/rank_ports.h"
#include "handover/room_link.h"
#include "handover/room_table.h"
#include "handover/thread_group.h"
#include "wire/handover_messages.h"

namespace shoal::handover {

class Room;

struct RoomStats {
  std::array<std::size_t, kOpenStates> open{};  // by RoomState
  std::uint64_t succeeded = 0;
  std::uint64_t failed = 0;
  // Pages reserved for KV to come, times the seconds they were.
  double page_seconds = 0;
};

class Rooms : public std::enable_shared_from_this<Rooms> {
 public:
  Rooms(engine::Engine& engine, std::shared_ptr<RankPorts> ports)
      : engine_(engine), ports_(std::move(ports)) {}
  ~Rooms();
  Rooms(const Rooms&) = delete;
  Rooms& operator=(const Rooms&) = delete;

  void start();
  // Ends every room and joins every thread.
  void stop();

  Status open(Room& room);
  std::shared_ptr<Room> find(RoomId id);
  bool move_to(RoomId id, RoomState state);
  void touch(RoomId id);
  // Its state lasts so long from now on, at most.
  void hasten(RoomId id, std::chrono::seconds most);
  // This state and every later one.
  void limit(RoomId id, std::chrono::seconds most);
  bool over(RoomId id);
  // Ends it; one that has not come yet is refused when it comes.
  void abandon(RoomId id);
  void add_page_seconds(double seconds);
  RoomStats stats() const;

  // False where no thread could be started, or stop() has been called.
  bool run(std::function<void()> work) { return threads_.run(std::move(work)); }
  bool stopping() const;

  engine::Engine& engine() { return engine_; }
  RankPorts& ports() { return *ports_; }
  // What a rank says of a room. Waits for nothing.
  void heard(std::int32_t rank, const wire::RankWord& word);

 private:
  void watch();

  engine::Engine& engine_;
  const std::shared_ptr<RankPorts> ports_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  RoomTable table_;
  std::unordered_map<RoomId, Room*> rooms_;
  double page_seconds_ = 0;
  bool stopping_ = false;
  ThreadGroup threads_;
  std::thread clock_;
};

// What departures and arrivals have in common.
class Room : public std::enable_shared_from_this<Room> {
 public:
  Room(std::shared_ptr<Rooms> rooms, RoomId id) : rooms_(std::move(rooms)), id_(id) {}
  virtual ~Room();
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  RoomId id() const { return id_; }
  // Before anything else; refuses a number that is in use or was not long ago.
  Status enter();

  // The connection that is woken and aborted while this lives; not taken where the room has ended or has one.
  class Linked {
   public:
    Linked(Room& room, RoomLink& link) : room_(room), taken_(room.take_link(link)) {}
    ~Linked() { drop(); }
    Linked(const Linked&) = delete;
    Linked& operator=(const Linked&) = delete;
    bool taken() const { return taken_; }
    void drop() {
      if (std::exchange(taken_, false)) room_.drop_link();
    }

   private:
    Room& room_;
    bool taken_;
  };

  // By connection or clock: the engine hears of it, and so does the other worker.
  void fail(const Status& why);
  // By the connection: all is done. False where the room has ended.
  bool succeed();
  bool ended() const;
  // open(): tells ranks of the room, what they will have to close. Not called where the room has ended.
  template <typename F>
  Status on_ranks(F&& open) {
    const std::lock_guard lock(ranks_mutex_);
    if (closed_) return {ErrorCode::kCancelled, "the room has ended"};
    opened_ = true;
    return open();
  }
  // A rank says something of the room.
  virtual void heard(std::int32_t rank, const wire::RankWord& word);
  // attach_to() has said for whom; nothing before.
  std::optional<std::pair<RequestId, std::int32_t>> attached() const;

 protected:
  void attach_to(RequestId request, std::int32_t choice);
  void close_for(const Status& why);
  // Under mutex_, once the room has not ended.
  void wake_link();
  // A rank that cannot go on has said why; nothing else has.
  std::optional<std::string> broken() const;
  // Called once with the engine's names for it, outside the mutex.
  void tell(const Status& status);

  const std::shared_ptr<Rooms> rooms_;
  mutable std::mutex mutex_;

 private:
  // The first end counts. False where there was one.
  bool end(RoomState state, std::string_view to_peer);
  bool take_link(RoomLink& link);
  void drop_link();
  void close_on_ranks(RoomState state, std::string_view why);

  const RoomId id_;
  bool entered_ = false;
  std::mutex ranks_mutex_;  // before mutex_
  bool opened_ = false;     // on ranks
  bool closed_ = false;
  RoomLink* link_ = nullptr;
  std::optional<std::string> broken_;
  bool ended_ = false;
  std::optional<RequestId> request_;
  std::int32_t choice_ = 0;
  std::optional<Status> untold_;  // it ended before attach_to()
};

}  // namespace shoal::handover
