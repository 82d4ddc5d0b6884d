// How a rank gets in: the opening, its seat, its assignment. Each caller has a thread of its own until then.

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <system_error>
#include <utility>

#include "core/log.h"
#include "engine/worker_ranks.h"

namespace shoal::engine {
namespace {

using wire::MessageType;

constexpr std::chrono::seconds kOpeningTime{5};
constexpr std::size_t kMostOpenings = 64;
// A rank that comes back may be here before its end has been dealt with.
constexpr std::chrono::seconds kSeatTime{2};

void turned_away(const std::string& peer, const std::string& reason) {
  log(LogLevel::kWarn, "ranks.stranger", "peer={} reason=\"{}\"", peer, reason);
}

}  // namespace

void WorkerRanks::accept() {
  for (;;) {
    auto socket = listener_.accept(now() + std::chrono::hours(1));
    std::unique_lock lock(mutex_);
    if (closing_) return;
    if (!socket.ok()) {
      if (socket.error().code() == ErrorCode::kDeadline) continue;
      log(LogLevel::kWarn, "ranks.listen", "error=\"{}\"", socket.error().message());
      return;
    }
    if (openings_ >= kMostOpenings) continue;
    ++openings_;
    // Each on its own: a stranger that says nothing keeps nobody waiting.
    try {
      std::thread([this, taken = *std::move(socket)]() mutable {
        const std::string peer = taken.peer();
        try {
          if (const Status in = admit(std::move(taken)); !in.ok()) turned_away(peer, in.message());
        } catch (const std::exception& error) {
          turned_away(peer, error.what());
        }
        const std::lock_guard done(mutex_);
        --openings_;
        changed_.notify_all();
      }).detach();
    } catch (const std::system_error& error) {
      --openings_;
      turned_away("", error.what());
    }
  }
}

// Fails with why it was turned away.
Status WorkerRanks::admit(comm::Socket socket) {
  const TimePoint deadline = now() + kOpeningTime;
  SHOAL_TRY(comm::open_as_callee(socket, *token_, wire::LinkPurpose::kControl, deadline));
  auto link = std::make_unique<comm::ControlLink>(std::move(socket));
  SHOAL_ASSIGN(frame, link->receive(deadline));
  if (frame.type != MessageType::kJoin) return {ErrorCode::kCorrupt, "it does not ask to join"};
  SHOAL_ASSIGN(join, wire::decode_join(frame.body));
  auto rank = seat(join);
  if (!rank.ok()) {
    (void)link->send(MessageType::kRefuse, wire::encode_sentence(rank.error().message()));
    // Until it hangs up: closing with its beats unread would take the sentence back.
    for (int i = 0; i < 4 && link->receive(now() + std::chrono::seconds(1)).ok();) ++i;
    return rank.error();
  }
  try {
    let_in(*rank, join, std::move(link));
  } catch (...) {
    const std::lock_guard lock(mutex_);
    Member& member = members_[static_cast<std::size_t>(*rank)];
    if (member.link == nullptr) member.state = State::kAbsent;
    changed_.notify_all();
    throw;
  }
  return {};
}

// It has its seat.
void WorkerRanks::let_in(std::int32_t index, const wire::Join& join,
                         std::unique_ptr<comm::ControlLink> link) {
  wire::Assign assign;
  {
    const std::lock_guard lock(mutex_);
    assign = assign_for(index, join.host);
  }
  (void)link->send(MessageType::kAssign, wire::encode(assign));
  const std::lock_guard lock(mutex_);
  // An epoch has begun meanwhile: the rank hears of it before anything else.
  if (assign.epoch != epoch_) (void)link->send(MessageType::kReset, wire::encode_epoch(epoch_));
  Member& member = members_[static_cast<std::size_t>(index)];
  member.name = fmt::format("rank {} (process {})", index, join.pid);
  member.host = join.host;
  member.pid = join.pid;
  member.state = State::kLoading;
  member.link = std::make_unique<comm::PulsedLink>(
      std::move(link), [this, index](comm::ControlFrame got) { take_frame(index, std::move(got)); },
      [this, index](const Status& status) { lose(index, status); });
  changed_.notify_all();
  log(LogLevel::kInfo, "rank.joined", "rank={} host={} pid={} epoch={}", index, join.host, join.pid,
      epoch_.value);
}

// Ranks of this host share its cores; others take those they have.
wire::Assign WorkerRanks::assign_for(std::int32_t rank, const std::string& host) const {
  wire::Assign assign = options_.assign;
  assign.rank = rank;
  assign.epoch = epoch_;
  assign.network = options_.joining.from_elsewhere();
  if (options_.handover.port != 0)
    assign.handover_port = static_cast<std::uint16_t>(options_.handover.port + rank);
  if (host == options_.joining.host) {
    assign.listen = options_.joining.listen.host;
    assign.handover_host = options_.handover.host;
  } else {
    assign.threads = 0;
    assign.spin = true;
  }
  return assign;
}

// Which number a rank gets.
Expected<std::int32_t> WorkerRanks::seat(const wire::Join& join) {
  const auto refused = [](std::string sentence) {
    return Status(ErrorCode::kInvalidArgument, std::move(sentence));
  };
  if (join.build != options_.build)
    return refused(fmt::format("a rank of build {} cannot join a head of build {}: install the same",
                               join.build, options_.build));
  if (join.host != options_.joining.host && !options_.joining.from_elsewhere())
    return refused(fmt::format(
        "a rank of host {} cannot share memory with a head of host {}: start the head with --listen-ranks",
        join.host, options_.joining.host));
  std::unique_lock lock(mutex_);
  const auto ranks = static_cast<std::int32_t>(members_.size());
  if (join.rank == 0 || join.rank >= ranks)
    return refused(fmt::format("there is no rank {} to join as: the layout {} has ranks 1 to {}", join.rank,
                               options_.layout.to_string(), ranks - 1));
  const auto is_free = [&](std::int32_t rank) {
    return members_[static_cast<std::size_t>(rank)].state == State::kAbsent;
  };
  const auto free_seat = [&]() -> std::int32_t {
    if (join.rank > 0) return is_free(join.rank) ? join.rank : 0;
    for (std::int32_t rank = options_.joining.local_ranks; rank < ranks; ++rank) {
      if (is_free(rank)) return rank;
    }
    return 0;
  };
  const auto being_cleared = [&] {
    return !closing_ &&
           std::ranges::any_of(members_, [](const Member& each) { return each.state == State::kLost; });
  };
  changed_.wait_for(lock, kSeatTime, [&] { return free_seat() != 0 || !being_cleared(); });
  if (const std::int32_t rank = free_seat(); rank != 0) {
    members_[static_cast<std::size_t>(rank)].state = State::kJoining;
    return rank;
  }
  if (join.rank > 0)
    return refused(fmt::format("rank {} has joined already: two ranks have one number", join.rank));
  return refused(
      fmt::format("all {} ranks of the layout {} have joined", ranks, options_.layout.to_string()));
}

}  // namespace shoal::engine
