#include "handover/receiver.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "comm/control_link.h"
#include "core/log.h"
#include "handover/landing_plan.h"
#include "wire/api_error.h"
#include "wire/json.h"

namespace shoal::handover {
namespace {

using wire::MessageType;

// Of look-up, connection and proof, each: as long as a peer may be silent later.
constexpr auto kConnectTime = RoomLink::kSilence;
// The prefill worker waits 15 s for its leg.
constexpr std::chrono::seconds kAcceptTime{20};
// Once the prompt is computed.
constexpr std::chrono::seconds kLandingTime{60};
// What a rank has seen break, the prefill worker's head may have a reason for.
constexpr std::chrono::milliseconds kReasonTime{100};
// Until the other side has closed a connection that has done its work.
constexpr std::chrono::seconds kGoodbyeTime{2};
constexpr std::size_t kMostTop = 128;
constexpr std::size_t kMostAccept = std::size_t{1} << 20;
constexpr std::size_t kMostCommit = std::size_t{64} << 10;
constexpr std::size_t kMostRoute = std::size_t{16} << 10;

// Where the head of the prefill worker is called.
Expected<comm::Endpoint> look_up(wire::HttpClient& http, const Bootstrap& prefill,
                                 const AllowedHosts& allowed) {
  wire::HttpCall call;
  call.url.host = prefill.host;
  call.url.port = prefill.port;
  call.url.path = "/route?target_dp_group=0&engine_rank=0&target_tp_rank=0&target_pp_rank=0";
  call.deadline = call.idle_timeout = call.connect_timeout = kConnectTime;
  const auto unreachable = [&](std::string_view why) {
    return Status(ErrorCode::kUnavailable,
                  fmt::format("no route to the prefill worker at {}: {}", call.url.authority(), why));
  };
  auto answer = http.send(call, kMostRoute);
  if (!answer.ok()) return unreachable(answer.error().message());
  if (answer->status != 200) return unreachable(wire::error_message_of(answer->body));
  const auto read = [&]() -> Expected<comm::Endpoint> {
    SHOAL_ASSIGN(document, wire::JsonDocument::parse(answer->body));
    SHOAL_ASSIGN(fields, document.fields());
    comm::Endpoint endpoint;
    int port = 0;
    SHOAL_TRY(fields.text("rank_ip", endpoint.host));
    SHOAL_TRY(fields.integer("rank_port", 1, 65535, port));
    if (port == 0) return wire::field_error("rank_port", "is missing");
    // It listens where its bootstrap port does.
    if (endpoint.host.empty()) endpoint.host = prefill.host;
    // Whoever has answered: it has proved nothing.
    if (endpoint.host != prefill.host && !allowed.allows(endpoint.host))
      return Status(ErrorCode::kUnavailable,
                    fmt::format("it is called at {}, which is none of the --prefill-hosts of this decode "
                                "worker",
                                endpoint.host));
    endpoint.port = static_cast<std::uint16_t>(port);
    return endpoint;
  };
  auto endpoint = read();
  if (!endpoint.ok()) return unreachable(endpoint.error().message());
  return endpoint;
}

class ArrivingRoom final : public Room, public engine::Arrival {
 public:
  ArrivingRoom(std::shared_ptr<Rooms> rooms, std::shared_ptr<Receiver::Ground> ground, RoomId id,
               Bootstrap prefill)
      : Room(std::move(rooms), id), ground_(std::move(ground)), prefill_(std::move(prefill)) {}

  void attach(RequestId request, std::int32_t choice) override { attach_to(request, choice); }
  void close(const Status& why) override { close_for(why); }
  void open(std::span<const TokenId> prompt, std::span<const kv::NewPage> lacking) override;
  void heard(std::int32_t rank, const wire::RankWord& word) override;

 private:
  void run();
  Expected<wire::Commit> fetch(RoomLink& link, const std::string& host);
  Expected<wire::Commit> read(RoomLink& link, const std::string& host);
  Status land(const wire::Accept& accept, const std::string& host);
  Status accept(RoomLink& link, const RoomLink::Frame& frame, const std::string& host);
  Expected<wire::Commit> commit_in(RoomLink& link, const RoomLink::Frame& frame) const;
  bool all_landed() const;

  const std::shared_ptr<Receiver::Ground> ground_;
  const Bootstrap prefill_;
  wire::Room asked_;
  std::vector<kv::NewPage> lacking_;
  std::set<std::int32_t> awaited_;  // ranks whose pages are still to land; under mutex_
  TimePoint reserved_{};
};

void ArrivingRoom::open(std::span<const TokenId> prompt, std::span<const kv::NewPage> lacking) {
  reserved_ = now();
  asked_.terms = ground_->terms;
  asked_.room = id();
  asked_.prompt_tokens = static_cast<std::int32_t>(prompt.size());
  asked_.prompt_digest = prompt_digest(prompt);
  lacking_.assign(lacking.begin(), lacking.end());
  std::vector<wire::RoomPage> all;
  for (const kv::NewPage& page : lacking)
    all.push_back({page.page.pool, page.logical, page.page.slot, page.page.generation});
  asked_.table = room_digest(id(), all);
  const bool runs = rooms_->run([self = std::static_pointer_cast<ArrivingRoom>(shared_from_this())] {
    try {
      self->run();
    } catch (const std::exception& error) {
      self->fail({ErrorCode::kInternal, fmt::format("taking a prompt over failed: {}", error.what())});
    }
  });
  if (!runs) fail({ErrorCode::kExhausted, "no thread could be started for the handover"});
}

void ArrivingRoom::run() {
  std::string host;
  const auto connect = [&]() -> Expected<std::unique_ptr<RoomLink>> {
    SHOAL_ASSIGN(endpoint, look_up(ground_->http, prefill_, ground_->options.prefill_hosts));
    host = endpoint.host;
    SHOAL_ASSIGN(socket, comm::connect_to(endpoint, now() + kConnectTime));
    return RoomLink::make(std::move(socket));
  };
  auto link = connect();
  if (!link.ok()) return fail(link.error());
  Linked linked(*this, **link);
  if (!linked.taken()) return;
  auto commit = fetch(**link, host);
  // From here on its end is nobody's loss.
  linked.drop();
  if (!commit.ok()) {
    fail(commit.error());
    return (*link)->abort(commit.error().message());
  }
  if (!succeed()) return (*link)->abort("the request has ended on the decode worker");
  rooms_->add_page_seconds(static_cast<double>(lacking_.size()) * seconds_between(reserved_, now()));
  const auto whose = attached();
  engine::FirstToken first;
  first.token = {commit->first_token, commit->logprob, std::move(commit->top)};
  first.cached_tokens = commit->cached_tokens;
  first.finished = commit->finished;
  if (whose) rooms_->engine().arrived(whose->first, whose->second, std::move(first));
  if ((*link)->send(MessageType::kLanded).ok()) (*link)->await_end(kGoodbyeTime);
}

Expected<wire::Commit> ArrivingRoom::fetch(RoomLink& link, const std::string& host) {
  SHOAL_TRY(comm::open_as_caller(link.socket(), *rooms_->ports().token(), wire::LinkPurpose::kHandover,
                                 now() + kConnectTime));
  SHOAL_TRY(link.send(MessageType::kRoom, wire::encode(asked_)));
  rooms_->hasten(id(), kAcceptTime);
  return read(link, host);
}

// The ranks that have pages to come are told where to fetch them.
Status ArrivingRoom::land(const wire::Accept& accept, const std::string& host) {
  SHOAL_ASSIGN(words, landing_plan(rooms_->engine().kv_pools(), lacking_, accept, host));
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t rank = 0; rank < words.size(); ++rank) {
      if (!words[rank].sources.empty()) awaited_.insert(static_cast<std::int32_t>(rank));
    }
  }
  return on_ranks([&]() -> Status {
    for (std::size_t rank = 0; rank < words.size(); ++rank) {
      wire::RankWord& word = words[rank];
      if (word.sources.empty()) continue;
      word.room = id();
      word.checksum = asked_.terms.checksum;
      word.direct = ground_->options.direct;
      SHOAL_TRY(rooms_->ports().tell(static_cast<std::int32_t>(rank), word));
    }
    return {};
  });
}

void ArrivingRoom::heard(std::int32_t rank, const wire::RankWord& word) {
  if (word.kind != wire::RankWord::Kind::kLanded) return Room::heard(rank, word);
  rooms_->move_to(id(), RoomState::kTransferring);
  const std::lock_guard lock(mutex_);
  awaited_.erase(rank);
  wake_link();
}

bool ArrivingRoom::all_landed() const {
  const std::lock_guard lock(mutex_);
  return awaited_.empty();
}

Status ArrivingRoom::accept(RoomLink& link, const RoomLink::Frame& frame, const std::string& host) {
  SHOAL_ASSIGN(body, link.receive_body(frame, kMostAccept));
  SHOAL_ASSIGN(accept, wire::decode_accept(body));
  rooms_->move_to(id(), RoomState::kWaiting);
  return land(accept, host);
}

Expected<wire::Commit> ArrivingRoom::commit_in(RoomLink& link, const RoomLink::Frame& frame) const {
  SHOAL_ASSIGN(body, link.receive_body(frame, kMostCommit));
  SHOAL_ASSIGN(rest, unsealed(body));
  SHOAL_ASSIGN(commit, wire::decode_commit(rest));
  if (commit.table != asked_.table)
    return Status(ErrorCode::kCorrupt, "the prefill worker commits other pages than were asked for");
  const auto known = [&](TokenId id) { return id >= 0 && id < rooms_->engine().description().vocabulary; };
  if (!known(commit.first_token) || commit.top.size() > kMostTop ||
      !std::ranges::all_of(commit.top, [&](const TokenLogprob& each) { return known(each.id); }))
    return Status(ErrorCode::kCorrupt, "the prefill worker's first token is not in the vocabulary");
  if (commit.cached_tokens < 0 || commit.cached_tokens > asked_.prompt_tokens)
    return Status(ErrorCode::kCorrupt, "the prefill worker has cached more than the prompt has");
  return commit;
}

// Until the prompt is computed and everything has landed.
Expected<wire::Commit> ArrivingRoom::read(RoomLink& link, const std::string& host) {
  bool accepted = false;
  std::optional<wire::Commit> commit;
  for (;;) {
    if (commit && (commit->finished || all_landed())) return *std::move(commit);
    if (const auto why = broken()) return link.last_word({ErrorCode::kUnavailable, *why}, kReasonTime);
    SHOAL_ASSIGN(frame, link.await_frame());
    if (!frame) {
      if (ended()) return Status(ErrorCode::kCancelled, "the request has ended on the decode worker");
      continue;
    }
    switch (frame->type) {
      case MessageType::kAccept:
        if (accepted) break;
        accepted = true;
        SHOAL_TRY(accept(link, *frame, host));
        continue;
      case MessageType::kRefuse: {
        SHOAL_ASSIGN(body, link.receive_body(*frame, RoomLink::kMostSentence));
        SHOAL_ASSIGN(refusal, wire::decode_refusal(body));
        return Status(refusal.of_request ? ErrorCode::kInvalidArgument : ErrorCode::kUnavailable,
                      refusal.sentence);
      }
      case MessageType::kAbort: {
        SHOAL_ASSIGN(body, link.receive_body(*frame, RoomLink::kMostSentence));
        SHOAL_ASSIGN(why, wire::decode_sentence(body));
        return Status(ErrorCode::kUnavailable, "the prefill worker ended the handover: " + why);
      }
      case MessageType::kCommit: {
        if (!accepted || commit) break;
        SHOAL_ASSIGN(said, commit_in(link, *frame));
        commit = std::move(said);
        rooms_->limit(id(), kLandingTime);
        continue;
      }
      default:
        break;
    }
    return Status(ErrorCode::kCorrupt, "the prefill worker says what is not due");
  }
}

}  // namespace

Receiver::Receiver(engine::Engine& engine, std::shared_ptr<RankPorts> ports, Options options)
    : ground_(std::make_shared<Ground>(std::move(options))),
      ports_(std::move(ports)),
      rooms_(std::make_shared<Rooms>(engine, ports_)) {
  ground_->terms = terms_of(engine.kv_pools(), engine.description().fingerprint, ground_->options.build,
                            ground_->options.checksums);
  ports_->serve(engine, rooms_);
  rooms_->start();
}

Receiver::~Receiver() {
  rooms_->stop();
  ports_->stop();
}

Expected<std::shared_ptr<engine::Arrival>> Receiver::arrive(RoomId id, Bootstrap prefill) {
  if (!ground_->options.prefill_hosts.allows(prefill.host))
    return Status(
        ErrorCode::kInvalidArgument,
        fmt::format("bootstrap_host {} is none of the --prefill-hosts of this decode worker", prefill.host),
        "bootstrap_host");
  auto room = std::make_shared<ArrivingRoom>(rooms_, ground_, id, std::move(prefill));
  SHOAL_TRY(room->enter());
  // Whoever drops it before the engine has ended it did not take the request.
  engine::Arrival* leg = room.get();
  return std::shared_ptr<engine::Arrival>(leg, [room = std::move(room)](engine::Arrival* dropped) {
    dropped->close({ErrorCode::kCancelled, "the decode worker did not take the request"});
  });
}

}  // namespace shoal::handover
