#include "handover/rank_ports.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/log.h"
#include "handover/rooms.h"

namespace shoal::handover {

void RankPorts::equip(engine::EngineOptions& options, std::string role, comm::Endpoint listen) {
  options.role = std::move(role);
  options.handover = std::move(listen);
  options.service = own_;
  options.word = [self = shared_from_this()](std::int32_t rank, std::span<const std::byte> word) {
    self->hear(rank, word);
  };
}

void RankPorts::serve(engine::Engine& engine, std::weak_ptr<Rooms> rooms) {
  const std::lock_guard lock(mutex_);
  engine_ = &engine;
  ranks_ = engine.kv_pools().layout.ranks();
  rooms_ = std::move(rooms);
}

void RankPorts::stop() {
  const std::lock_guard lock(mutex_);
  engine_ = nullptr;
  rooms_.reset();
}

void RankPorts::set_own_endpoint(std::string endpoint) {
  const std::lock_guard lock(mutex_);
  if (endpoints_.empty()) endpoints_.resize(1);
  endpoints_.front() = std::move(endpoint);
  changed_.notify_all();
}

std::string RankPorts::endpoint(std::int32_t rank) const {
  const std::lock_guard lock(mutex_);
  return rank < std::ssize(endpoints_) ? endpoints_[static_cast<std::size_t>(rank)] : std::string();
}

Expected<std::vector<std::string>> RankPorts::endpoints(TimePoint deadline) {
  std::unique_lock lock(mutex_);
  const bool known = changed_.wait_until(lock, deadline, [&] {
    return std::ssize(endpoints_) == ranks_ &&
           std::ranges::none_of(endpoints_, [](const std::string& each) { return each.empty(); });
  });
  if (!known)
    return Status(ErrorCode::kUnavailable, "ranks of the prefill worker are not ready to be called");
  return endpoints_;
}

void RankPorts::hear(std::int32_t rank, std::span<const std::byte> bytes) {
  auto word = wire::decode_word(bytes);
  if (!word.ok()) {
    log(LogLevel::kError, "handover.word", "rank={} reason=\"{}\"", rank, word.error().message());
    return;
  }
  std::shared_ptr<Rooms> rooms;
  {
    const std::lock_guard lock(mutex_);
    if (word->kind == wire::RankWord::Kind::kListening) {
      // The head's own rank, at the end of an epoch: the others may come back elsewhere.
      if (rank == 0 && word->text.empty()) {
        endpoints_.resize(std::min<std::size_t>(endpoints_.size(), 1));
        return;
      }
      const auto index = static_cast<std::size_t>(rank);
      if (endpoints_.size() <= index) endpoints_.resize(index + 1);
      endpoints_[index] = std::move(word->text);
      changed_.notify_all();
      return;
    }
    rooms = rooms_.lock();
  }
  if (rooms != nullptr) rooms->heard(rank, *word);
}

Status RankPorts::tell(std::int32_t rank, const wire::RankWord& word) {
  engine::Engine* engine = nullptr;
  {
    const std::lock_guard lock(mutex_);
    engine = engine_;
  }
  if (engine == nullptr) return {ErrorCode::kUnavailable, "the worker is shutting down"};
  return engine->tell_rank(rank, wire::encode(word));
}

Status RankPorts::tell_all(const wire::RankWord& word) {
  std::int32_t ranks = 0;
  {
    const std::lock_guard lock(mutex_);
    ranks = ranks_;
  }
  Status first;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    if (Status status = tell(rank, word); !status.ok() && first.ok()) first = std::move(status);
  }
  return first;
}

}  // namespace shoal::handover
