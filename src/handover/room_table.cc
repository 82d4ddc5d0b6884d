#include "handover/room_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace shoal::handover {
namespace {

bool is_open(RoomState state) { return static_cast<std::size_t>(state) < kOpenStates; }

}  // namespace

std::string_view room_state_name(RoomState state) {
  switch (state) {
    case RoomState::kBootstrapping:
      return "bootstrapping";
    case RoomState::kWaiting:
      return "waiting";
    case RoomState::kTransferring:
      return "transferring";
    case RoomState::kSuccess:
      return "success";
    case RoomState::kFailed:
      return "failed";
  }
  return "failed";
}

Status RoomTable::open(RoomId room, TimePoint now) {
  forget(now);
  if (room > kMostRoom)
    return {ErrorCode::kInvalidArgument, "bootstrap_room must be a number of at most 63 bits",
            "bootstrap_room"};
  if (open_.contains(room))
    return {ErrorCode::kInvalidArgument,
            fmt::format("bootstrap_room {} is in use: draw a new one for each attempt", room),
            "bootstrap_room"};
  if (remembered_.contains(room))
    return {ErrorCode::kInvalidArgument,
            fmt::format("bootstrap_room {} is over: draw a new one for each attempt", room),
            "bootstrap_room"};
  open_.emplace(room, Room{RoomState::kBootstrapping, now + kLongest[0]});
  ++counts_[0];
  return {};
}

void RoomTable::bury(RoomId room, TimePoint now) {
  forget(now);
  if (!open_.contains(room) && !remembered_.contains(room)) remember(room, now);
}

bool RoomTable::move_to(RoomId room, RoomState state, TimePoint now) {
  const auto it = open_.find(room);
  if (it == open_.end() || state <= it->second.state) return false;
  --counts_[static_cast<std::size_t>(it->second.state)];
  if (is_open(state)) {
    ++counts_[static_cast<std::size_t>(state)];
    it->second.state = state;
    it->second.deadline = now + longest(it->second);
    return true;
  }
  ++ended_[static_cast<std::size_t>(state) - kOpenStates];
  open_.erase(it);
  remember(room, now);
  return true;
}

std::chrono::nanoseconds RoomTable::longest(const Room& room) {
  return std::min<std::chrono::nanoseconds>(kLongest[static_cast<std::size_t>(room.state)], room.most);
}

void RoomTable::touch(RoomId room, TimePoint now) {
  const auto it = open_.find(room);
  if (it != open_.end() && it->second.state == RoomState::kTransferring)
    it->second.deadline = now + longest(it->second);
}

void RoomTable::hasten(RoomId room, TimePoint deadline) {
  const auto it = open_.find(room);
  if (it != open_.end()) it->second.deadline = std::min(it->second.deadline, deadline);
}

void RoomTable::limit(RoomId room, std::chrono::seconds most, TimePoint now) {
  const auto it = open_.find(room);
  if (it == open_.end()) return;
  it->second.most = most;
  it->second.deadline = std::min(it->second.deadline, now + longest(it->second));
}

std::optional<RoomState> RoomTable::state(RoomId room) const {
  const auto it = open_.find(room);
  if (it == open_.end()) return std::nullopt;
  return it->second.state;
}

std::vector<std::pair<RoomId, RoomState>> RoomTable::expire(TimePoint now) {
  std::vector<std::pair<RoomId, RoomState>> late;
  for (const auto& [id, room] : open_) {
    if (room.deadline <= now) late.emplace_back(id, room.state);
  }
  std::ranges::sort(late);
  for (const auto& [id, state] : late) move_to(id, RoomState::kFailed, now);
  forget(now);
  return late;
}

std::optional<TimePoint> RoomTable::next_deadline() const {
  std::optional<TimePoint> next;
  for (const auto& [id, room] : open_) {
    if (!next || room.deadline < *next) next = room.deadline;
  }
  return next;
}

void RoomTable::remember(RoomId room, TimePoint now) {
  remembered_[room] = now + kRemembered;
  forget_at_.emplace_back(now + kRemembered, room);
  forget(now);
}

void RoomTable::forget(TimePoint now) {
  while (!forget_at_.empty() && (forget_at_.front().first <= now || forget_at_.size() > kMostRemembered)) {
    remembered_.erase(forget_at_.front().second);
    forget_at_.pop_front();
  }
}

}  // namespace shoal::handover
