#include "handover/sender.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "comm/control_link.h"
#include "core/log.h"
#include "handover/departing_room.h"
#include "handover/page_push.h"
#include "kv/page_table.h"

namespace shoal::handover {
namespace {

using wire::MessageType;

constexpr std::chrono::seconds kOpeningTime{5};
constexpr std::size_t kMostOpenings = 64;
// Both legs are sent at once; one may have to wait to be read.
constexpr std::chrono::seconds kLegTime{15};
// 16 bytes a page: half a million pages.
constexpr std::size_t kMostRoomBytes = std::size_t{8} << 20;
constexpr std::size_t kMostSentence = 4096;

Status check_pages(const wire::Room& asked, const engine::KvPools& pools) {
  const std::int32_t most = kv::pages_for(asked.prompt_tokens);
  std::pair<std::int32_t, std::int32_t> last{-1, -1};
  for (const wire::RoomPage& page : asked.pages) {
    const std::pair at{page.group, page.logical};
    if (at <= last || page.group < 0 || page.group >= std::ssize(pools.views) || page.logical < 0 ||
        page.logical >= most)
      return {ErrorCode::kCorrupt,
              fmt::format("a room asks for page {} of KV group {}: there is no such thing", page.logical,
                          page.group)};
    last = at;
  }
  return {};
}

wire::Commit commit_of(const PagePush& push, const engine::FirstToken& first) {
  wire::Commit commit;
  commit.table = push.table();
  commit.writes = push.writes();
  commit.bytes = push.bytes();
  commit.cached_tokens = first.cached_tokens;
  commit.finished = first.finished;
  commit.first_token = first.token.id;
  commit.logprob = first.token.logprob;
  commit.top = first.token.top;
  return commit;
}

// What a decode worker says while it is served.
enum class Said { kNothing, kLanded };
Expected<Said> hear(RoomLink& link) {
  SHOAL_ASSIGN(frame, link.await_frame());
  if (!frame) return Said::kNothing;
  if (frame->type == MessageType::kLanded && frame->length == 0) return Said::kLanded;
  if (frame->type != MessageType::kAbort)
    return Status(ErrorCode::kCorrupt, "the decode worker says what is not due");
  SHOAL_ASSIGN(body, link.receive_body(*frame, kMostSentence));
  SHOAL_ASSIGN(why, wire::decode_sentence(body));
  return Status(ErrorCode::kUnavailable, "the decode worker ended the handover: " + why);
}

}  // namespace

Expected<std::unique_ptr<Sender>> Sender::start(engine::Engine& engine, Options options) {
  SHOAL_ASSIGN(listener, comm::Listener::open(options.host, options.port));
  std::unique_ptr<Sender> sender(new Sender(engine, std::move(options), std::move(listener)));
  sender->rooms_->start();
  sender->acceptor_ = std::thread([raw = sender.get()] { raw->accept(); });
  return sender;
}

Sender::Sender(engine::Engine& engine, Options options, comm::Listener listener)
    : engine_(engine),
      options_(std::move(options)),
      terms_(terms_of(engine, options_.build, options_.checksums)),
      listener_(std::move(listener)),
      rooms_(std::make_shared<Rooms>(engine)) {}

Sender::~Sender() {
  listener_.shut_down();
  if (acceptor_.joinable()) acceptor_.join();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (RoomLink* link : links_) link->abort("the prefill worker is shutting down");
  }
  rooms_->stop();
}

Expected<std::shared_ptr<engine::Departure>> Sender::depart(RoomId id, std::span<const TokenId> prompt) {
  auto room = std::make_shared<DepartingRoom>(rooms_, id, static_cast<std::int32_t>(prompt.size()),
                                              prompt_digest(prompt));
  SHOAL_TRY(room->enter());
  const std::lock_guard lock(mutex_);
  const auto [begin, end] = waiting_.equal_range(id);
  for (auto at = begin; at != end; ++at) at->second->wake();
  return std::shared_ptr<engine::Departure>(std::move(room));
}

void Sender::accept() {
  for (;;) {
    auto socket = listener_.accept(now() + std::chrono::hours(1));
    if (!socket.ok()) {
      if (socket.error().code() == ErrorCode::kDeadline) continue;
      return;
    }
    auto made = RoomLink::make(*std::move(socket));
    if (!made.ok()) continue;
    const std::shared_ptr<RoomLink> link = *std::move(made);
    {
      const std::lock_guard lock(mutex_);
      // Closed at once.
      if (openings_ >= kMostOpenings || links_.size() >= kMostCallers) continue;
      ++openings_;
      links_.insert(link.get());
    }
    const auto gone = [this, link](bool opened) {
      const std::lock_guard lock(mutex_);
      if (!opened) --openings_;
      links_.erase(link.get());
    };
    if (!rooms_->run([this, link, gone] {
          bool opened = false;
          try {
            answer(*link, opened);
          } catch (const std::exception& error) {
            log(LogLevel::kError, "handover.failed", "what=\"{}\"", error.what());
          }
          gone(opened);
        }))
      gone(false);
  }
}

void Sender::answer(RoomLink& link, bool& opened) {
  auto asked = open(link);
  {
    const std::lock_guard lock(mutex_);
    --openings_;
    opened = true;
  }
  if (!asked.ok()) {
    log(LogLevel::kWarn, "handover.stranger", "reason=\"{}\"", asked.error().message());
    return;
  }
  // Another attempt may find it: not a misfit.
  const auto turn_away = [&](const Status& why) {
    log(LogLevel::kWarn, "handover.refused", "room={} reason=\"{}\"", asked->room, why.message());
    // Best effort: whoever does not hear it sees the connection end.
    [[maybe_unused]] const Status sent = link.send(MessageType::kAbort, wire::encode_sentence(why.message()));
  };
  const auto room = await_departure(link, asked->room);
  if (room == nullptr)
    return turn_away(
        {ErrorCode::kNotFound,
         rooms_->over(asked->room)
             ? fmt::format("room {} is over on the prefill worker", asked->room)
             : fmt::format("no request with room {} has come to the prefill worker", asked->room)});
  if (!room->take_link(link))
    return turn_away({ErrorCode::kInvalidArgument,
                      fmt::format("room {} is over or taken on the prefill worker", asked->room)});
  const Status status = push(link, *room, *asked);
  room->drop_link();
  if (!status.ok()) room->fail(status);
}

// Proof, then what is asked for.
Expected<wire::Room> Sender::open(RoomLink& link) {
  SHOAL_TRY(comm::open_as_callee(link.socket(), *options_.token, wire::LinkPurpose::kHandover,
                                 now() + kOpeningTime));
  SHOAL_ASSIGN(frame, link.await_frame());
  if (!frame || frame->type != MessageType::kRoom)
    return Status(ErrorCode::kCorrupt, "the caller does not say which room it wants");
  SHOAL_ASSIGN(body, link.receive_body(*frame, kMostRoomBytes));
  return wire::decode_room(body);
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

Status Sender::push(RoomLink& link, DepartingRoom& room, const wire::Room& asked) {
  const auto refuse = [&](Status why) {
    [[maybe_unused]] const Status sent =
        link.send(MessageType::kRefuse, wire::encode_sentence(why.message()));
    return why;
  };
  if (const Status status = check_terms(terms_, asked.terms); !status.ok()) return refuse(status);
  if (asked.prompt_tokens != room.prompt_tokens() || asked.prompt_digest != room.prompt_digest())
    return refuse({ErrorCode::kInvalidArgument,
                   fmt::format("the prompts of room {} differ: the prefill worker read {} tokens, the decode "
                               "worker {}: both legs need the same request",
                               asked.room, room.prompt_tokens(), asked.prompt_tokens)});
  if (const Status status = check_pages(asked, engine_.kv_pools()); !status.ok()) return refuse(status);
  SHOAL_TRY(link.send(MessageType::kAccept));
  rooms_->move_to(room.id(), RoomState::kWaiting);
  room.called();

  const auto checksums = std::max(options_.checksums, static_cast<Checksums>(asked.terms.checksum));
  PagePush pages(link, room, engine_.kv_pools(), asked, checksums);
  for (;;) {
    DepartingRoom::Work work = room.take();
    SHOAL_TRY(pages.add(work.pages));
    const TimePoint computed = now();
    const bool needed = !work.first || !work.first->finished;
    if (needed && !work.pages.empty()) {
      rooms_->move_to(room.id(), RoomState::kTransferring);
      SHOAL_TRY(pages.flush());
      rooms_->touch(room.id());
    }
    if (work.first) {
      if (needed && !pages.complete())
        return {ErrorCode::kInternal, "a page that the decode worker wants has been given back"};
      SHOAL_TRY(link.send(MessageType::kCommit, wire::encode(commit_of(pages, *work.first))));
      for (;;) {
        SHOAL_ASSIGN(said, hear(link));
        if (said == Said::kLanded) break;
      }
      const double seconds = seconds_between(computed, now());
      comm::Charge charge;
      charge.calls = pages.writes();
      charge.payload = pages.bytes();
      charge.wire[static_cast<std::size_t>(link.scope())] = pages.bytes();
      charge.exposed = seconds;
      charge.hidden = std::max(0.0, pages.seconds() - seconds);
      {
        const std::lock_guard lock(mutex_);
        engine_.ledger().charge(comm::Purpose::kKv, charge);
      }
      log(LogLevel::kInfo, "room.handed_over",
          "room={} pages={} bytes={} writes={} push_ms={:.2f} exposed_ms={:.2f}", room.id(),
          asked.pages.size(), pages.bytes(), pages.writes(), 1e3 * pages.seconds(), 1e3 * seconds);
      room.landed();
      return {};
    }
    SHOAL_ASSIGN(said, hear(link));
    if (said == Said::kLanded)
      return {ErrorCode::kCorrupt, "the decode worker says that it has what was not sent"};
  }
}

}  // namespace shoal::handover
