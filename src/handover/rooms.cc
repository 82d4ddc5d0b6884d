#include "handover/rooms.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "core/log.h"

namespace shoal::handover {
namespace {

// How late a deadline may be noticed.
constexpr std::chrono::milliseconds kTick{500};

Status too_long(RoomState state) {
  switch (state) {
    case RoomState::kBootstrapping:
      return {ErrorCode::kDeadline, "the other worker of this handover did not come in time"};
    case RoomState::kWaiting:
      return {ErrorCode::kDeadline, "the prompt of this handover was not computed in time"};
    default:
      return {ErrorCode::kDeadline, "the KV of this handover did not move on in time"};
  }
}

}  // namespace

Rooms::~Rooms() { stop(); }

void Rooms::start() {
  clock_ = std::thread([this] { watch(); });
}

void Rooms::stop() {
  std::vector<std::shared_ptr<Room>> open;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const auto& [id, room] : rooms_) {
      if (auto shared = room->weak_from_this().lock()) open.push_back(std::move(shared));
    }
  }
  changed_.notify_all();
  for (const auto& room : open) room->fail({ErrorCode::kUnavailable, "the worker is shutting down"});
  if (clock_.joinable()) clock_.join();
  threads_.stop();
}

// Ends rooms that are past their deadline.
void Rooms::watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (!table_.next_deadline()) {
      changed_.wait(lock, [&] { return stopping_ || table_.next_deadline(); });
      continue;
    }
    changed_.wait_for(lock, kTick, [&] { return stopping_; });
    std::vector<std::pair<std::shared_ptr<Room>, RoomState>> late;
    for (const auto& [id, state] : table_.expire(now())) {
      const auto it = rooms_.find(id);
      if (it == rooms_.end()) continue;
      if (auto room = it->second->weak_from_this().lock()) late.emplace_back(std::move(room), state);
    }
    lock.unlock();
    for (const auto& [room, state] : late) room->fail(too_long(state));
    late.clear();
    lock.lock();
  }
}

Status Rooms::open(Room& room) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return {ErrorCode::kUnavailable, "the worker is shutting down"};
    SHOAL_TRY(table_.open(room.id(), now()));
    rooms_[room.id()] = &room;
  }
  changed_.notify_all();
  return {};
}

std::shared_ptr<Room> Rooms::find(RoomId id) {
  const std::lock_guard lock(mutex_);
  const auto it = rooms_.find(id);
  return it == rooms_.end() ? nullptr : it->second->weak_from_this().lock();
}

bool Rooms::move_to(RoomId id, RoomState state) {
  const std::lock_guard lock(mutex_);
  if (state >= RoomState::kSuccess) rooms_.erase(id);
  return table_.move_to(id, state, now());
}

void Rooms::touch(RoomId id) {
  const std::lock_guard lock(mutex_);
  table_.touch(id, now());
}

void Rooms::hasten(RoomId id, std::chrono::seconds most) {
  const std::lock_guard lock(mutex_);
  table_.hasten(id, now() + most);
}

void Rooms::limit(RoomId id, std::chrono::seconds most) {
  const std::lock_guard lock(mutex_);
  table_.limit(id, most, now());
}

bool Rooms::over(RoomId id) {
  const std::lock_guard lock(mutex_);
  return table_.over(id);
}

void Rooms::abandon(RoomId id) {
  std::shared_ptr<Room> room;
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = rooms_.find(id); it != rooms_.end()) {
      room = it->second->weak_from_this().lock();
    } else {
      table_.bury(id, now());
    }
  }
  if (room != nullptr) room->fail({ErrorCode::kCancelled, "the request was cancelled"});
}

void Rooms::add_page_seconds(double seconds) {
  const std::lock_guard lock(mutex_);
  page_seconds_ += seconds;
}

RoomStats Rooms::stats() const {
  const std::lock_guard lock(mutex_);
  RoomStats stats;
  for (std::size_t state = 0; state < kOpenStates; ++state)
    stats.open[state] = table_.count(static_cast<RoomState>(state));
  stats.succeeded = table_.ended(RoomState::kSuccess);
  stats.failed = table_.ended(RoomState::kFailed);
  stats.page_seconds = page_seconds_;
  return stats;
}

void Rooms::heard(std::int32_t rank, const wire::RankWord& word) {
  if (const auto room = find(word.room)) room->heard(rank, word);
}

bool Rooms::stopping() const {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

Room::~Room() {
  // One that has ended may have another with its number by now.
  if (entered_ && !ended_) rooms_->move_to(id_, RoomState::kFailed);
}

Status Room::enter() {
  SHOAL_TRY(rooms_->open(*this));
  entered_ = true;
  return {};
}

std::optional<std::pair<RequestId, std::int32_t>> Room::attached() const {
  const std::lock_guard lock(mutex_);
  if (!request_) return std::nullopt;
  return std::pair(*request_, choice_);
}

bool Room::take_link(RoomLink& link) {
  const std::lock_guard lock(mutex_);
  if (ended_ || link_ != nullptr) return false;
  link_ = &link;
  return true;
}

void Room::drop_link() {
  const std::lock_guard lock(mutex_);
  link_ = nullptr;
}

bool Room::ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

// Twice at once: the second waits until the first has told the ranks.
void Room::close_on_ranks(RoomState state, std::string_view why) {
  const std::lock_guard lock(ranks_mutex_);
  if (std::exchange(closed_, true) || !opened_) return;
  wire::RankWord word;
  word.kind = state == RoomState::kSuccess ? wire::RankWord::Kind::kFree : wire::RankWord::Kind::kClose;
  word.room = id_;
  word.text = why.substr(0, 1000);
  // A rank that does not hear it is lost, and with it whatever it could touch.
  [[maybe_unused]] const Status told = rooms_->ports().tell_all(word);
}

bool Room::end(RoomState state, std::string_view to_peer) {
  close_on_ranks(state, to_peer);
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return false;
    ended_ = true;
    if (link_ != nullptr && !to_peer.empty()) link_->abort(to_peer);
  }
  rooms_->move_to(id_, state);
  return true;
}

void Room::fail(const Status& why) {
  if (!end(RoomState::kFailed, why.message())) return;
  log(LogLevel::kWarn, "room.failed", "room={} reason=\"{}\"", id_, why.message());
  tell(why);
}

bool Room::succeed() { return end(RoomState::kSuccess, ""); }

void Room::attach_to(RequestId request, std::int32_t choice) {
  std::optional<Status> untold;
  {
    const std::lock_guard lock(mutex_);
    request_ = request;
    choice_ = choice;
    untold = std::exchange(untold_, std::nullopt);
  }
  if (untold) rooms_->engine().handover_ended(request, choice, *untold);
}

void Room::close_for(const Status& why) { end(RoomState::kFailed, why.message()); }

void Room::heard(std::int32_t /*rank*/, const wire::RankWord& word) {
  if (word.kind == wire::RankWord::Kind::kMoving) {
    rooms_->move_to(id_, RoomState::kTransferring);
    rooms_->touch(id_);
  } else if (word.kind == wire::RankWord::Kind::kBroken) {
    const std::lock_guard lock(mutex_);
    if (!broken_) broken_ = word.text;
    wake_link();
  }
}

std::optional<std::string> Room::broken() const {
  const std::lock_guard lock(mutex_);
  return broken_;
}

void Room::wake_link() {
  if (link_ != nullptr) link_->wake();
}

void Room::tell(const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    if (!request_) {
      untold_ = status;
      return;
    }
  }
  rooms_->engine().handover_ended(*request_, choice_, status);
}

}  // namespace shoal::handover
