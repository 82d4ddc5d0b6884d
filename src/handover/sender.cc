#include "handover/sender.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "core/log.h"
#include "handover/departing_room.h"

namespace shoal::handover {
namespace {

using wire::MessageType;
using wire::RankWord;

// Both legs are sent at once; one may have to wait to be read.
constexpr std::chrono::seconds kLegTime{15};
// Ranks say where they listen before the first request is served, and in a new epoch at its beginning.
constexpr std::chrono::seconds kRanksTime{1};
constexpr std::size_t kMostRoomBytes = std::size_t{64} << 10;
// For an answer to what is committed.
constexpr std::chrono::seconds kLandingTime{60};
// What a rank has seen break, the decode worker's head may have a reason for.
constexpr std::chrono::milliseconds kReasonTime{100};

wire::Commit commit_of(std::uint64_t table, const engine::FirstToken& first) {
  wire::Commit commit;
  commit.table = table;
  commit.cached_tokens = first.cached_tokens;
  commit.finished = first.finished;
  commit.first_token = first.token.id;
  commit.logprob = first.token.logprob;
  commit.top = first.token.top;
  return commit;
}

}  // namespace

Expected<std::unique_ptr<Sender>> Sender::start(engine::Engine& engine, std::shared_ptr<RankPorts> ports,
                                                Options options) {
  std::unique_ptr<Sender> sender(new Sender(engine, std::move(ports), std::move(options)));
  SHOAL_ASSIGN(port, CallPort::start(sender->options_.listen, sender->ports_->token(),
                                     [raw = sender.get()](RoomLink& link, const RoomLink::Frame& frame) {
                                       // Its own rank is called where the worker is.
                                       return frame.type == MessageType::kFetch
                                                  ? raw->ports_->own().serve(link, frame)
                                                  : raw->answer(link, frame);
                                     }));
  sender->port_ = std::move(port);
  sender->ports_->serve(engine, sender->rooms_);
  sender->ports_->set_own_endpoint(fmt::format(":{}", sender->port()));
  sender->rooms_->start();
  return sender;
}

Sender::Sender(engine::Engine& engine, std::shared_ptr<RankPorts> ports, Options options)
    : engine_(engine),
      ports_(std::move(ports)),
      options_(std::move(options)),
      terms_(
          terms_of(engine.kv_pools(), engine.description().fingerprint, options_.build, options_.checksums)),
      rooms_(std::make_shared<Rooms>(engine, ports_)) {}

Sender::~Sender() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const auto& [room, link] : waiting_) link->wake();
  }
  rooms_->stop();
  port_.reset();
  ports_->stop();
}

Expected<std::shared_ptr<engine::Departure>> Sender::depart(RoomId id, std::span<const TokenId> prompt) {
  auto room = std::make_shared<DepartingRoom>(rooms_, id, static_cast<std::int32_t>(prompt.size()),
                                              prompt_digest(prompt));
  SHOAL_TRY(room->enter());
  const std::lock_guard lock(mutex_);
  const auto [begin, end] = waiting_.equal_range(id);
  for (auto at = begin; at != end; ++at) at->second->wake();
  // Whoever drops it before the engine has ended it did not take the request.
  engine::Departure* leg = room.get();
  return std::shared_ptr<engine::Departure>(leg, [room = std::move(room)](engine::Departure* dropped) {
    dropped->close({ErrorCode::kCancelled, "the prefill worker did not take the request"});
  });
}

Status Sender::answer(RoomLink& link, const RoomLink::Frame& frame) {
  if (frame.type != MessageType::kRoom)
    return {ErrorCode::kCorrupt, "the caller does not say which room it wants"};
  SHOAL_ASSIGN(body, link.receive_body(frame, kMostRoomBytes));
  SHOAL_ASSIGN(asked, wire::decode_room(body));
  // Another attempt may find it: not a misfit.
  const auto turn_away = [&](const Status& why) -> Status {
    log(LogLevel::kWarn, "handover.refused", "room={} reason=\"{}\"", asked.room, why.message());
    link.say_why(why.message());
    return {};
  };
  const auto room = await_departure(link, asked.room);
  if (room == nullptr)
    return turn_away(
        {ErrorCode::kNotFound,
         rooms_->over(asked.room)
             ? fmt::format("room {} is over on the prefill worker", asked.room)
             : fmt::format("no request with room {} has come to the prefill worker", asked.room)});
  Status status;
  {
    const Room::Linked linked(*room, link);
    if (!linked.taken())
      return turn_away({ErrorCode::kInvalidArgument,
                        fmt::format("room {} is over or taken on the prefill worker", asked.room)});
    try {
      status = push(link, *room, asked);
    } catch (const std::exception& error) {
      status = Status(ErrorCode::kInternal, fmt::format("handing a prompt over failed: {}", error.what()));
    }
  }
  if (status.ok()) return {};
  link.say_why(status.message());
  room->fail(status);
  return {};
}

std::shared_ptr<DepartingRoom> Sender::await_departure(RoomLink& link, RoomId id) {
  const TimePoint end = now() + kLegTime;
  const auto entry = [&] {
    const std::lock_guard lock(mutex_);
    return waiting_.emplace(id, &link);
  }();
  std::shared_ptr<Room> room;
  bool stopping = false;
  while (!stopping && (room = rooms_->find(id)) == nullptr && !rooms_->over(id) && now() < end) {
    // Woken by depart(); a word or the end of the caller is none of a departure.
    if (const auto said = link.await_word(std::chrono::milliseconds(250)); !said.ok()) break;
    const std::lock_guard lock(mutex_);
    stopping = stopping_;
  }
  const std::lock_guard lock(mutex_);
  waiting_.erase(entry);
  return std::static_pointer_cast<DepartingRoom>(room);
}

// Its ranks hear of the room before the decode worker hears of them, and before the engine does.
Status Sender::accept(RoomLink& link, DepartingRoom& room, const wire::Room& asked) {
  SHOAL_ASSIGN(endpoints, ports_->endpoints(now() + kRanksTime));
  const engine::KvPools& pools = engine_.kv_pools();
  wire::Accept accept;
  for (std::size_t rank = 0; rank < endpoints.size(); ++rank)
    accept.ranks.push_back(
        {endpoints[rank], pools.layout.coordinate(static_cast<std::int32_t>(rank)).cp, pools.parts[rank]});
  RankWord expect;
  expect.kind = RankWord::Kind::kExpect;
  expect.room = room.id();
  expect.prompt_tokens = room.prompt_tokens();
  expect.checksum =
      static_cast<std::uint8_t>(std::max(options_.checksums, static_cast<Checksums>(asked.terms.checksum)));
  SHOAL_TRY(room.on_ranks([&] { return ports_->tell_all(expect); }));
  SHOAL_TRY(link.send(MessageType::kAccept, wire::encode(accept)));
  rooms_->move_to(room.id(), RoomState::kWaiting);
  room.called();
  return {};
}

Status Sender::push(RoomLink& link, DepartingRoom& room, const wire::Room& asked) {
  const auto refuse = [&](const Status& why) {
    const wire::Refusal refusal{why.message().substr(0, RoomLink::kMostSentence / 2),
                                why.code() == ErrorCode::kInvalidArgument};
    [[maybe_unused]] const Status sent = link.send(MessageType::kRefuse, wire::encode(refusal));
    return why;
  };
  if (const Status status = check_terms(terms_, asked.terms); !status.ok()) return refuse(status);
  if (asked.prompt_tokens != room.prompt_tokens() || asked.prompt_digest != room.prompt_digest())
    return refuse({ErrorCode::kInvalidArgument,
                   fmt::format("the prompts of room {} differ: the prefill worker read {} tokens, the decode "
                               "worker {}: both legs need the same request",
                               asked.room, room.prompt_tokens(), asked.prompt_tokens)});
  SHOAL_TRY(accept(link, room, asked));
  bool finished = false;  // nothing needs to land
  std::optional<TimePoint> committed;
  for (;;) {
    if (const auto first = room.take()) {
      finished = first->finished;
      committed = now();
      SHOAL_TRY(link.send(MessageType::kCommit, sealed(wire::encode(commit_of(asked.table, *first)))));
      rooms_->limit(room.id(), kLandingTime);
      RankWord computed;
      computed.kind = RankWord::Kind::kComputed;
      computed.room = room.id();
      SHOAL_TRY(room.on_ranks([&] { return ports_->tell_all(computed); }));
    }
    if (const auto broken = room.broken_rank(); broken && !finished)
      return link.last_word({ErrorCode::kUnavailable, *broken}, kReasonTime);
    SHOAL_ASSIGN(landed, link.hear_landed());
    if (!landed) continue;
    if (!committed) return {ErrorCode::kCorrupt, "the decode worker says that it has what was not sent"};
    log(LogLevel::kInfo, "room.landed", "room={} after_commit_ms={:.2f}", room.id(),
        1e3 * seconds_between(*committed, now()));
    room.landed();
    return {};
  }
}

}  // namespace shoal::handover
