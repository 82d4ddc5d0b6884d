#include "handover/rank_port.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "comm/control_link.h"
#include "core/log.h"

namespace shoal::handover {
namespace {

using wire::MessageType;
using wire::RankWord;

// Until the other side has closed a connection that has done its work.
constexpr std::chrono::seconds kGoodbyeTime{2};
// The prefill worker's head has told its ranks of a room before the decode worker hears of them.
constexpr std::chrono::seconds kExpectTime{5};
// 16 bytes a page: half a million pages.
constexpr std::size_t kMostFetchBytes = std::size_t{8} << 20;

}  // namespace

RankPort::~RankPort() {
  end();
  port_.reset();
  threads_.stop();
}

Status RankPort::begin(Begin begin) {
  const bool calls_come_here = begin.role == "prefill" && begin.rank > 0;
  if (calls_come_here && port_ == nullptr) {
    SHOAL_ASSIGN(port,
                 CallPort::start(begin.listen, token_, [this](RoomLink& link, const RoomLink::Frame& frame) {
                   return serve(link, frame);
                 }));
    port_ = std::move(port);
  }
  const bool any = begin.listen.host == "0.0.0.0" || begin.listen.host == "::";
  const std::string host = begin.at_head || any ? "" : begin.listen.host;
  {
    const std::lock_guard lock(mutex_);
    pools_ = std::make_shared<const RankPools>(RankPools{begin.pools, begin.parts, begin.windows});
    begun_ = std::make_shared<const Begin>(std::move(begin));
    serving_ = true;
  }
  {
    const std::unique_lock lock(telling_);
    telling_allowed_ = true;
  }
  if (calls_come_here)
    say(RankWord::Kind::kListening, 0,
        host.empty() ? fmt::format(":{}", port_->port()) : comm::to_string({host, port_->port()}));
  return {};
}

void RankPort::end() {
  std::map<RoomId, std::shared_ptr<DepartingPages>> departing;
  std::map<RoomId, std::shared_ptr<LandingPages>> landing;
  std::shared_ptr<const Begin> begun;
  {
    const std::lock_guard lock(mutex_);
    serving_ = false;
    begun = begun_;
    departing.swap(departing_);
    landing.swap(landing_);
  }
  // The other ranks may be others, at other ports, when the next epoch serves.
  if (begun != nullptr && begun->role == "prefill" && begun->rank == 0) say(RankWord::Kind::kListening, 0);
  for (const auto& [id, room] : departing) room->close("the prefill worker starts anew");
  for (const auto& [id, room] : landing) room->close("the decode worker starts anew");
  const std::unique_lock lock(telling_);
  telling_allowed_ = false;
}

void RankPort::say(RankWord::Kind kind, RoomId room, std::string text) {
  std::shared_ptr<const Begin> begun;
  {
    const std::lock_guard lock(mutex_);
    begun = begun_;
  }
  RankWord word;
  word.kind = kind;
  word.room = room;
  word.text = std::move(text);
  const std::shared_lock lock(telling_);
  if (!telling_allowed_ || begun == nullptr) return;
  // A head that does not hear it is gone, and the room with it.
  [[maybe_unused]] const Status said = begun->say(wire::encode(word));
}

void RankPort::take(std::span<const std::byte> bytes) {
  auto word = wire::decode_word(bytes);
  const RoomId room = word.ok() ? word->room : 0;
  const Status status = word.ok() ? take_word(*std::move(word)) : word.status();
  if (status.ok()) return;
  log(LogLevel::kError, "handover.word", "room={} reason=\"{}\"", room, status.message());
  say(RankWord::Kind::kBroken, room, status.message());
}

Status RankPort::take_word(RankWord word) {
  switch (word.kind) {
    case RankWord::Kind::kExpect: {
      auto room = std::make_shared<DepartingPages>(word.room, word.prompt_tokens,
                                                   static_cast<Checksums>(word.checksum));
      const std::lock_guard lock(mutex_);
      if (serving_) departing_[word.room] = std::move(room);
      return {};
    }
    case RankWord::Kind::kLand:
      return land(std::move(word));
    case RankWord::Kind::kComputed:
      if (const auto room = departing(word.room)) room->finish();
      return {};
    case RankWord::Kind::kClose:
    case RankWord::Kind::kFree:
      end_room(word.room, word);
      return {};
    default:
      return {ErrorCode::kCorrupt, "the head says what is a rank's to say"};
  }
}

void RankPort::end_room(RoomId id, const RankWord& word) {
  std::shared_ptr<RankRoom> room;
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = departing_.extract(id); !at.empty()) room = at.mapped();
    if (const auto at = landing_.extract(id); !at.empty()) room = at.mapped();
  }
  if (room == nullptr) return;
  if (word.kind == RankWord::Kind::kFree) {
    room->free();
  } else {
    room->close(word.text);
  }
}

void RankPort::computed(const engine::ComputedPages& pages) {
  if (const auto room = departing(pages.room)) room->add(pages);
}

std::string RankPort::own_host() {
  const std::lock_guard lock(mutex_);
  return begun_->host;
}

std::shared_ptr<DepartingPages> RankPort::departing(RoomId id) {
  const std::lock_guard lock(mutex_);
  const auto at = departing_.find(id);
  return at == departing_.end() ? nullptr : at->second;
}

std::shared_ptr<DepartingPages> RankPort::await_departing(RoomLink& link, RoomId id) {
  const TimePoint end = now() + kExpectTime;
  for (;;) {
    if (auto room = departing(id); room != nullptr || now() >= end) return room;
    // Words to this rank take as long as it does to read them: a moment.
    if (!link.await_word(std::chrono::milliseconds(50)).ok()) return nullptr;
  }
}

Status RankPort::serve(RoomLink& link, const RoomLink::Frame& frame) {
  if (frame.type != MessageType::kFetch)
    return {ErrorCode::kCorrupt, "the caller does not say which room it wants"};
  SHOAL_ASSIGN(body, link.receive_body(frame, kMostFetchBytes));
  SHOAL_ASSIGN(fetch, wire::decode_fetch(body));
  const RoomId id = fetch.room;
  const auto room = await_departing(link, id);
  if (room == nullptr) {
    const std::string why = fmt::format("room {} is not open on this rank of the prefill worker", id);
    log(LogLevel::kWarn, "handover.refused", "room={} reason=\"{}\"", id, why);
    link.say_why(why);
    return {};
  }
  Status status;
  {
    const RankRoom::Attached attached(*room, link);
    try {
      status = push(link, *room, std::move(fetch));
    } catch (const std::exception& error) {
      status = Status(ErrorCode::kInternal, fmt::format("sending KV failed: {}", error.what()));
    }
  }
  if (status.ok() || room->closed()) return {};
  // A broken connection may still hold why the other side ended it.
  status = link.last_word(status, std::chrono::milliseconds(0));
  link.say_why(status.message());
  say(RankWord::Kind::kBroken, id, status.message());
  return {};
}

Status RankPort::push(RoomLink& link, DepartingPages& room, wire::Fetch fetch) {
  std::shared_ptr<const RankPools> pools;
  {
    const std::lock_guard lock(mutex_);
    pools = pools_;
  }
  const Checksums checksums = std::max(room.checksums(), static_cast<Checksums>(fetch.checksum));
  const bool shares_host = !fetch.host.empty() && fetch.host == own_host();
  SHOAL_ASSIGN(pages, PagePush::make(link, room, *pools, std::move(fetch), room.prompt_tokens(), checksums));
  if (shares_host) {
    SHOAL_ASSIGN(landed, offer(link, *pools, pages));
    if (landed) return {};
  }
  const Status status = push_all(link, room, pages);
  // Whatever came of it: bytes have moved.
  if (pages.writes() > 0) charge(link, room.id(), pages, seconds_between(pages.last_computed(), now()));
  return status;
}

// The other side may read the pages itself, where it can. True where it has everything from elsewhere
// meanwhile.
Expected<bool> RankPort::offer(RoomLink& link, const RankPools& pools, PagePush& pages) {
  wire::Offer offer;
  offer.process = static_cast<std::int32_t>(::getpid());
  const MemoryMark mark = own_memory_mark();
  offer.mark_address = mark.address;
  offer.mark_value = mark.value;
  for (std::size_t g = 0; g < pools.views.size(); ++g)
    offer.pools.push_back(
        {reinterpret_cast<std::uint64_t>(pools.views[g].base), pools.views[g].layout.slots, pools.parts[g]});
  SHOAL_TRY(link.send(MessageType::kOffer, wire::encode(offer)));
  for (;;) {
    SHOAL_ASSIGN(frame, link.await_frame());
    if (!frame) continue;
    if (frame->type == MessageType::kLanded && frame->length == 0) return true;
    if (frame->type != MessageType::kTake || frame->length != 1)
      return Status(ErrorCode::kCorrupt, "the decode worker says what is not due");
    std::byte direct{0};
    SHOAL_TRY(link.receive(std::span(&direct, 1)));
    if (direct == std::byte{1}) pages.set_direct();
    return false;
  }
}

// Until the decode worker's rank has everything, or the room is closed.
Status RankPort::push_all(RoomLink& link, DepartingPages& room, PagePush& pages) {
  std::size_t seen = 0;
  bool ended = false;
  for (;;) {
    // Before the list is looked at: then it is whole.
    const bool finished = room.finished();
    const auto computed = room.next(seen);
    seen += computed.size();
    for (const DepartingPages::Computed& each : computed) {
      const std::uint64_t before = pages.writes();
      SHOAL_TRY(pages.write(each));
      if (pages.writes() > before && room.moves()) say(RankWord::Kind::kMoving, room.id());
    }
    if (!computed.empty()) continue;
    if (finished && !std::exchange(ended, true)) {
      const std::uint64_t writes = pages.writes();
      SHOAL_TRY(link.send(MessageType::kEnd, std::as_bytes(std::span(&writes, 1))));
    }
    SHOAL_ASSIGN(landed, link.hear_landed());
    if (room.closed()) return {};
    if (!landed) continue;
    // What it has read is what was here: the pages are held still.
    if (pages.direct()) {
      SHOAL_TRY(room.guard().with_pages([]() -> Status { return {}; }));
      SHOAL_TRY(link.send(MessageType::kLanded));
    }
    return {};
  }
}

void RankPort::charge(const RoomLink& link, RoomId room, const PagePush& pages, double exposed) {
  comm::Charge charge;
  charge.calls = pages.writes();
  charge.payload = pages.bytes();
  charge.wire[static_cast<std::size_t>(link.scope())] = pages.bytes();
  charge.exposed = exposed;
  charge.hidden = std::max(0.0, pages.seconds() - exposed);
  std::shared_ptr<const Begin> begun;
  {
    const std::lock_guard lock(mutex_);
    begun = begun_;
  }
  begun->ledger->charge(comm::Purpose::kKv, charge);
  log(LogLevel::kInfo, "room.handed_over",
      "room={} rank={} to={} by={} bytes={} writes={} push_ms={:.2f} exposed_ms={:.2f}", room, begun->rank,
      link.peer(), pages.direct() ? "memory" : "tcp", pages.bytes(), pages.writes(), 1e3 * pages.seconds(),
      1e3 * exposed);
}

Status RankPort::land(RankWord word) {
  std::shared_ptr<LandingPages> room;
  {
    const std::lock_guard lock(mutex_);
    // What belongs to an epoch that has ended.
    if (!serving_) return {};
    for (const wire::RoomPage& page : word.pages) {
      if (page.group < 0 || page.group >= std::ssize(pools_->views) || page.slot < 0 ||
          page.slot >= pools_->views[static_cast<std::size_t>(page.group)].layout.slots)
        return {ErrorCode::kCorrupt, "the head names a page that this rank has not"};
    }
    room = std::make_shared<LandingPages>(pools_, std::move(word));
    landing_[room->id()] = room;
  }
  for (const RankWord::Source& source : room->asked().sources) {
    if (!threads_.run([this, room, &source] { fetch(*room, source); }))
      return {ErrorCode::kExhausted, "no thread could be started for the handover"};
  }
  return {};
}

void RankPort::fetch(LandingPages& room, const RankWord::Source& source) {
  const auto connect = [&]() -> Expected<std::unique_ptr<RoomLink>> {
    SHOAL_ASSIGN(endpoint, comm::parse_endpoint(source.endpoint));
    SHOAL_ASSIGN(socket, comm::connect_to(endpoint, now() + RoomLink::kSilence));
    return RoomLink::make(std::move(socket));
  };
  const auto broken = [&](const Status& why) {
    if (!room.closed())
      say(RankWord::Kind::kBroken, room.id(),
          fmt::format("KV from the prefill worker's rank at {}: {}", source.endpoint, why.message()));
  };
  std::unique_ptr<RoomLink> link;
  bool done = false;
  const auto get = [&]() -> Status {
    SHOAL_ASSIGN(connected, connect());
    link = std::move(connected);
    const RankRoom::Attached attached(room, *link);
    SHOAL_TRY(comm::open_as_caller(link->socket(), *token_, wire::LinkPurpose::kHandover,
                                   now() + RoomLink::kSilence));
    wire::Fetch fetch;
    fetch.room = room.id();
    fetch.table = room.landing().table();
    fetch.checksum = room.asked().checksum;
    if (room.asked().direct) fetch.host = own_host();
    fetch.parts = source.parts;
    fetch.pages = room.asked().pages;
    SHOAL_TRY(link->send(MessageType::kFetch, wire::encode(fetch)));
    Reading reading;
    const Status came = read(*link, room, reading);
    charge(reading);
    SHOAL_TRY(came);
    SHOAL_TRY(link->send(MessageType::kLanded));
    if (reading.from) SHOAL_TRY(await_confirmation(*link, room));
    done = true;
    if (room.confirm()) say(RankWord::Kind::kLanded, room.id());
    return {};
  };
  Status status;
  try {
    status = get();
  } catch (const std::exception& error) {
    status = Status(ErrorCode::kInternal, fmt::format("fetching KV failed: {}", error.what()));
  }
  if (done) return link->await_end(kGoodbyeTime);
  broken(status);
  if (link != nullptr) link->abort(status.message());
}

// Who reads pages itself spends the time; the bytes are charged where they come from, as ever.
void RankPort::charge(const Reading& reading) {
  if (!reading.from) return;
  comm::Charge charge;
  charge.hidden = reading.seconds;
  std::shared_ptr<const Begin> begun;
  {
    const std::lock_guard lock(mutex_);
    begun = begun_;
  }
  begun->ledger->charge(comm::Purpose::kKv, charge);
}

// The prefill worker's rank held the pages until they had been read.
Status RankPort::await_confirmation(RoomLink& link, LandingPages& room) {
  for (;;) {
    SHOAL_ASSIGN(frame, link.await_frame());
    if (frame && frame->type == MessageType::kLanded && frame->length == 0) return {};
    if (frame && frame->type == MessageType::kEnd) {
      SHOAL_TRY(link.receive_body(*frame, sizeof(std::uint64_t)).status());
      continue;
    }
    if (frame && frame->type != MessageType::kAbort)
      return {ErrorCode::kCorrupt, "the prefill worker says what is not due"};
    if (frame || room.closed()) return {ErrorCode::kUnavailable, "the prefill worker ended the handover"};
  }
}

// Until everything is there, from here or elsewhere.
Status RankPort::read(RoomLink& link, LandingPages& room, Reading& reading) {
  std::uint64_t writes = 0;
  while (!room.landing().complete()) {
    SHOAL_ASSIGN(frame, link.await_frame());
    if (!frame) {
      if (room.closed()) return {ErrorCode::kCancelled, "the room is closed"};
      continue;
    }
    if (frame->type == MessageType::kAbort) {
      SHOAL_ASSIGN(body, link.receive_body(*frame, RoomLink::kMostSentence));
      SHOAL_ASSIGN(why, wire::decode_sentence(body));
      return {ErrorCode::kUnavailable, why};
    }
    if (frame->type == MessageType::kOffer && room.asked().direct && !reading.from && writes == 0) {
      SHOAL_ASSIGN(body, link.receive_body(*frame, RoomLink::kMostSentence));
      SHOAL_ASSIGN(offer, wire::decode_offer(body));
      const PeerMemory memory(offer.process);
      if (offer.pools.size() == room.asked_groups() && finds(memory, {offer.mark_address, offer.mark_value}))
        reading.from = PageLanding::Direct{memory, std::move(offer.pools)};
      const std::byte taken{static_cast<unsigned char>(reading.from ? 1 : 0)};
      SHOAL_TRY(link.send(MessageType::kTake, std::span(&taken, 1)));
      continue;
    }
    if (frame->type == MessageType::kEnd && frame->length == sizeof writes) {
      std::uint64_t sent = 0;
      SHOAL_TRY(link.receive(std::as_writable_bytes(std::span(&sent, 1))));
      if (sent != writes)
        return {ErrorCode::kCorrupt, fmt::format("{} of {} writes have come", writes, sent)};
      continue;
    }
    if (frame->type != MessageType::kWrite)
      return {ErrorCode::kCorrupt, "the prefill worker says what is not due"};
    ++writes;
    const TimePoint began = now();
    SHOAL_ASSIGN(last,
                 room.landing().take(link, *frame, room.guard(), reading.from ? &*reading.from : nullptr));
    if (reading.from) reading.seconds += seconds_between(began, now());
    if (last) {
      room.wake_links();
    } else if (room.moves()) {
      say(RankWord::Kind::kMoving, room.id());
    }
  }
  return {};
}

}  // namespace shoal::handover
