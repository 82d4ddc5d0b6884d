#include "cli/fake_rooms.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "wire/api_error.h"
#include "wire/json.h"

namespace shoal::cli {
namespace {

constexpr std::size_t kMostRemembered = 65'536;
constexpr std::chrono::seconds kCallTime{30};   // a leg waits for its caller
constexpr std::chrono::seconds kEarlyTime{15};  // a caller for its leg
constexpr std::chrono::milliseconds kTick{250};

Status gone(const std::string& why) { return {ErrorCode::kUnavailable, why}; }

}  // namespace

FakeRooms::FakeRooms(wire::EventLoop& loop, wire::HttpClient& client)
    : loop_(loop), client_(client), timer_(loop) {}

FakeRooms::~FakeRooms() {
  for (auto& [ignored, room] : rooms_) {
    if (room.call != nullptr) room.call->cancel();
  }
}

Status FakeRooms::enter(RoomId id, Room room) {
  if (over_.contains(id)) return wire::field_error("bootstrap_room", fmt::format("room {} is over", id));
  if (rooms_.contains(id)) return wire::field_error("bootstrap_room", fmt::format("room {} is in use", id));
  room.deadline = now() + kCallTime;
  rooms_.emplace(id, std::move(room));
  if (rooms_.size() == 1) tick();
  return {};
}

Status FakeRooms::depart(RoomId id, std::function<void()> called, std::function<void(const Status&)> failed) {
  Room room;
  room.called = std::move(called);
  room.ended = std::move(failed);
  room.departs = true;
  SHOAL_TRY(enter(id, std::move(room)));
  const auto early = early_.find(id);
  if (early == early_.end()) return {};
  rooms_.at(id).caller = std::move(early->second.first);
  early_.erase(early);
  // When the whole request has entered its rooms.
  loop_.post([this, id, alive = std::weak_ptr(alive_)] {
    if (alive.expired()) return;
    const auto it = rooms_.find(id);
    if (it == rooms_.end() || !it->second.called) return;
    it->second.deadline = TimePoint::max();
    std::exchange(it->second.called, nullptr)();
  });
  return {};
}

void FakeRooms::handle_call(const wire::HttpRequest& request, const wire::ResponsePtr& response) {
  const auto document = wire::JsonDocument::parse(request.body);
  std::uint64_t id = 0;
  if (!document.ok() || document->root()["room"].get_uint64().get(id) != simdjson::SUCCESS)
    return response->respond(wire::error_reply(wire::field_error("room", "must name a room")));
  if (over_.contains(id)) return response->respond(wire::error_reply(gone("the room is over")));
  response->on_disconnect([this, id, caller = response.get(), alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) caller_gone(id, caller);
  });
  const auto it = rooms_.find(id);
  if (it == rooms_.end()) {
    early_[id] = {response, now() + kEarlyTime};
    if (rooms_.empty()) tick();
    return;
  }
  if (!it->second.departs || it->second.caller != nullptr)
    return response->respond(wire::error_reply(gone("the room has its caller already")));
  it->second.caller = response;
  it->second.deadline = TimePoint::max();
  std::exchange(it->second.called, nullptr)();
}

void FakeRooms::caller_gone(RoomId id, const wire::ResponseWriter* caller) {
  if (const auto early = early_.find(id); early != early_.end() && early->second.first.get() == caller)
    early_.erase(early);
  const auto it = rooms_.find(id);
  if (it != rooms_.end() && it->second.caller.get() == caller)
    end(id, gone("the decode worker ended the handover"));
}

void FakeRooms::commit(RoomId id) {
  const auto it = rooms_.find(id);
  if (it == rooms_.end()) return;
  if (it->second.caller != nullptr) it->second.caller->respond(200, "application/json", "{}");
  it->second.caller = nullptr;
  it->second.ended = nullptr;
  end(id, {});
}

Status FakeRooms::arrive(RoomId id, std::function<void(const Status&)> done) {
  Room room;
  room.ended = std::move(done);
  SHOAL_TRY(enter(id, std::move(room)));
  rooms_.at(id).deadline = TimePoint::max();  // it waits for pages first; its client has the patience
  return {};
}

void FakeRooms::call(const wire::BootstrapEntry& to) {
  const auto it = rooms_.find(to.room);
  if (it == rooms_.end()) return;
  wire::HttpCall call;
  call.url.host = to.host;
  call.url.port = to.port;
  call.url.path = "/fake_room";
  call.method = "POST";
  call.headers = {{"Content-Type", "application/json"}};
  call.body = fmt::format(R"({{"room":{}}})", to.room);
  struct Answer {
    int status = 0;
    std::string body;
  };
  const auto answer = std::make_shared<Answer>();
  it->second.call = client_.start(
      std::move(call), {[answer](int status, const wire::HeaderList&) { answer->status = status; },
                        [answer](std::string_view bytes) {
                          answer->body += bytes;
                          return answer->body.size() < 4096;
                        },
                        [this, id = to.room, answer, alive = std::weak_ptr(alive_)](const Status& status) {
                          if (alive.expired()) return;
                          const auto room = rooms_.find(id);
                          if (room == rooms_.end()) return;
                          room->second.call = nullptr;
                          if (!status.ok()) return end(id, gone("no prefill worker: " + status.message()));
                          if (answer->status != 200)
                            return end(id, gone("the prefill worker ended the handover: " +
                                                wire::error_message_of(answer->body)));
                          end(id, {});
                        }});
}

void FakeRooms::abandon(RoomId id) {
  if (const auto it = rooms_.find(id); it != rooms_.end()) it->second.ended = nullptr;
  end(id, gone("the request has ended"));
}

void FakeRooms::end(RoomId id, const Status& why) {
  if (over_.insert(id).second) {
    over_in_turn_.push_back(id);
    if (over_in_turn_.size() > kMostRemembered) {
      over_.erase(over_in_turn_.front());
      over_in_turn_.pop_front();
    }
  }
  if (const auto early = early_.find(id); early != early_.end()) {
    early->second.first->respond(wire::error_reply(why));
    early_.erase(early);
  }
  const auto it = rooms_.find(id);
  if (it == rooms_.end()) return;
  const Room room = std::move(it->second);
  rooms_.erase(it);
  if (room.call != nullptr) room.call->cancel();
  if (room.caller != nullptr) room.caller->respond(wire::error_reply(why));
  if (room.ended) room.ended(why);
}

void FakeRooms::tick() {
  const TimePoint time = now();
  std::vector<RoomId> late;
  for (const auto& [id, room] : rooms_) {
    if (time > room.deadline) late.push_back(id);
  }
  for (const auto& [id, caller] : early_) {
    if (time > caller.second) late.push_back(id);
  }
  for (const RoomId id : late) end(id, gone("the other worker did not come in time"));
  if (!rooms_.empty() || !early_.empty()) timer_.start(kTick, [this] { tick(); });
}

}  // namespace shoal::cli
