// The rooms of a worker while they live: who is told when one ends, the threads that their connections run
// on, the clock that ends those past their deadlines.
//
// Thread-safety: every function may be called from any thread.
// Ownership: shared by all rooms, so that it outlives them. A Room is shared by the engine's request and the
//   thread of its connection. stop() must come while the engine lives: afterwards nothing calls it.
// Invariants:
//   1. A room's end is told once: to the engine where the connection or the clock ended it, to the other
//      worker where the engine did.
//   2. After Room::close() has returned no byte of a page is touched for the room.
//   3. Threads: one a connection, one for the clock; all have ended when stop() returns.

#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
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
#include "handover/room_link.h"
#include "handover/room_table.h"

namespace shoal::handover {

class Room;

struct RoomStats {
  std::array<std::size_t, kOpenStates> open{};  // by RoomState
  std::uint64_t succeeded = 0;
  std::uint64_t failed = 0;
  // Pages reserved, or held for a reader, times the seconds they were.
  double page_seconds = 0;
};

class Rooms : public std::enable_shared_from_this<Rooms> {
 public:
  explicit Rooms(engine::Engine& engine) : engine_(engine) {}
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
  void hasten(RoomId id, std::chrono::seconds most);
  bool over(RoomId id);
  // Ends it; one that has not come yet is refused when it comes.
  void abandon(RoomId id);
  void add_page_seconds(double seconds);
  RoomStats stats() const;

  // False where no thread could be started, or stop() has been called.
  bool run(std::function<void()> work);
  bool stopping() const;

  engine::Engine& engine() { return engine_; }

 private:
  struct Worker {
    std::thread thread;
    bool done = false;
  };

  void watch();
  void reap(std::unique_lock<std::mutex>& lock);

  engine::Engine& engine_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  RoomTable table_;
  std::unordered_map<RoomId, Room*> rooms_;
  std::list<Worker> workers_;
  double page_seconds_ = 0;
  bool stopping_ = false;
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
  PageGuard& guard() { return guard_; }

  // The connection that is to be woken and aborted; false where the room has ended or has one.
  bool take_link(RoomLink& link);
  void drop_link();

  // By connection or clock: the engine hears of it, and so does the other worker.
  void fail(const Status& why);
  // By the connection: all is done. False where the room has ended.
  bool succeed();
  bool ended() const;
  // attach_to() has said for whom; nothing before.
  std::optional<std::pair<RequestId, std::int32_t>> attached() const;

 protected:
  void attach_to(RequestId request, std::int32_t choice);
  void close_for(const Status& why);
  // Under mutex_, once the room has not ended.
  void wake_link();
  // Called once with the engine's names for it, outside the mutex.
  void tell(const Status& status);

  const std::shared_ptr<Rooms> rooms_;
  mutable std::mutex mutex_;

 private:
  // The first end counts. False where there was one.
  bool end(RoomState state, std::string_view to_peer);

  const RoomId id_;
  bool entered_ = false;
  PageGuard guard_;
  RoomLink* link_ = nullptr;
  bool ended_ = false;
  std::optional<RequestId> request_;
  std::int32_t choice_ = 0;
  std::optional<Status> untold_;  // it ended before attach_to()
};

}  // namespace shoal::handover
