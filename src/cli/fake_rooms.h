// The handovers of a worker without a model. There is no KV to move: a decode worker's call at the prefill
// worker's port (POST /fake_room {"room"}), answered when the prompt is computed, stands for its way.
//
// Thread-safety: of the worker's loop.
// Ownership: owns the calls under way; refers to loop and client. Callbacks are gone with their room.
// Invariants:
//   1. A room ends once: committed, refused, abandoned, or past its deadline; the other side is told by its
//      call's end.
//   2. A room that is over is refused for as long as it is remembered: 65,536 rooms.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "core/clock.h"
#include "core/expected.h"
#include "wire/bootstrap_fields.h"
#include "wire/event_loop.h"
#include "wire/http_client.h"
#include "wire/response_writer.h"

namespace shoal::cli {

class FakeRooms {
 public:
  using RoomId = std::uint64_t;

  FakeRooms(wire::EventLoop& loop, wire::HttpClient& client);
  ~FakeRooms();

  // A prefill worker's leg. called: the other worker has come, and waits. failed: nothing comes of it.
  Status depart(RoomId room, std::function<void()> called, std::function<void(const Status& why)> failed);
  // The prompt is computed.
  void commit(RoomId room);
  // The other worker has come: at POST /fake_room.
  void handle_call(const wire::HttpRequest& request, const wire::ResponsePtr& response);

  // A decode worker's leg. done: with how it went.
  Status arrive(RoomId room, std::function<void(const Status& how)> done);
  // Its pages are there.
  void call(const wire::BootstrapEntry& to);

  // Ends it without telling its own leg; one that is not there is refused when it comes.
  void abandon(RoomId room);
  std::size_t open() const { return rooms_.size(); }

 private:
  struct Room {
    std::function<void()> called;
    std::function<void(const Status&)> ended;  // a prefill leg's failure, a decode leg's end
    bool departs = false;
    TimePoint deadline{};
    wire::ResponsePtr caller;                  // of a departing one
    std::shared_ptr<wire::HttpExchange> call;  // of an arriving one
  };

  Status enter(RoomId room, Room entered);
  void end(RoomId room, const Status& why);
  void caller_gone(RoomId room, const wire::ResponseWriter* caller);
  void tick();

  wire::EventLoop& loop_;
  wire::HttpClient& client_;
  std::unordered_map<RoomId, Room> rooms_;
  // Callers whose leg is not here yet.
  std::unordered_map<RoomId, std::pair<wire::ResponsePtr, TimePoint>> early_;
  std::unordered_set<RoomId> over_;
  std::deque<RoomId> over_in_turn_;
  wire::LoopTimer timer_;
  // What calls under way refer to; gone with this.
  const std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace shoal::cli
