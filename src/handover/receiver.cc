#include "handover/receiver.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "comm/control_link.h"
#include "core/log.h"
#include "handover/page_landing.h"
#include "wire/api_error.h"
#include "wire/json.h"

namespace shoal::handover {
namespace {

using wire::MessageType;

constexpr std::chrono::seconds kConnectTime{5};
constexpr std::size_t kMostSentence = 4096;
constexpr std::size_t kMostCommit = std::size_t{64} << 10;
constexpr std::size_t kMostRoute = std::size_t{16} << 10;

// Where the rank of the prefill worker that holds everything sends from.
Expected<comm::Endpoint> look_up(wire::HttpClient& http, const Bootstrap& prefill) {
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

 private:
  void run();
  Expected<wire::Commit> fetch(RoomLink& link);
  Expected<wire::Commit> read(RoomLink& link);

  const std::shared_ptr<Receiver::Ground> ground_;
  const Bootstrap prefill_;
  wire::Room asked_;
  TimePoint reserved_{};
};

void ArrivingRoom::open(std::span<const TokenId> prompt, std::span<const kv::NewPage> lacking) {
  reserved_ = now();
  asked_.terms = ground_->terms;
  asked_.room = id();
  asked_.prompt_tokens = static_cast<std::int32_t>(prompt.size());
  asked_.prompt_digest = prompt_digest(prompt);
  for (const kv::NewPage& page : lacking)
    asked_.pages.push_back({page.group, page.logical, page.page.slot, page.page.generation});
  std::ranges::sort(asked_.pages, {},
                    [](const wire::RoomPage& page) { return std::pair(page.group, page.logical); });
  const bool runs = rooms_->run([self = std::static_pointer_cast<ArrivingRoom>(shared_from_this())] {
    self->run();
    self->rooms_->add_page_seconds(static_cast<double>(self->asked_.pages.size()) *
                                   seconds_between(self->reserved_, now()));
  });
  if (!runs) fail({ErrorCode::kExhausted, "no thread could be started for the handover"});
}

void ArrivingRoom::run() {
  const auto connect = [&]() -> Expected<std::unique_ptr<RoomLink>> {
    SHOAL_ASSIGN(endpoint, look_up(ground_->http, prefill_));
    SHOAL_ASSIGN(socket, comm::connect_to(endpoint, now() + kConnectTime));
    return RoomLink::make(std::move(socket));
  };
  auto link = connect();
  if (!link.ok()) return fail(link.error());
  if (!take_link(**link)) return;
  auto commit = fetch(**link);
  // From here on its end is nobody's loss.
  drop_link();
  if (!commit.ok()) {
    fail(commit.error());
    return (*link)->abort(commit.error().message());
  }
  if (!succeed()) return (*link)->abort("the request has ended on the decode worker");
  const auto whose = attached();
  engine::FirstToken first;
  first.token = {commit->first_token, commit->logprob, std::move(commit->top)};
  first.cached_tokens = commit->cached_tokens;
  first.finished = commit->finished;
  if (whose) rooms_->engine().arrived(whose->first, whose->second, std::move(first));
  if (!(*link)->send(MessageType::kLanded).ok()) return;
  // Closed by the other side: what it has not read yet would be lost with a connection that ends here.
  while ((*link)->await_frame().ok()) {
  }
}

Expected<wire::Commit> ArrivingRoom::fetch(RoomLink& link) {
  SHOAL_TRY(comm::open_as_caller(link.socket(), *ground_->options.token, wire::LinkPurpose::kHandover,
                                 now() + kConnectTime));
  SHOAL_TRY(link.send(MessageType::kRoom, wire::encode(asked_)));
  return read(link);
}

Expected<wire::Commit> ArrivingRoom::read(RoomLink& link) {
  PageLanding landing(rooms_->engine().kv_pools(), id(), asked_.pages);
  bool accepted = false;
  for (;;) {
    SHOAL_ASSIGN(frame, link.await_frame());
    if (!frame) {
      if (ended()) return Status(ErrorCode::kCancelled, "the request has ended on the decode worker");
      continue;
    }
    switch (frame->type) {
      case MessageType::kAccept:
        if (accepted || frame->length != 0) break;
        accepted = true;
        rooms_->move_to(id(), RoomState::kWaiting);
        continue;
      case MessageType::kRefuse:
      case MessageType::kAbort: {
        SHOAL_ASSIGN(body, link.receive_body(*frame, kMostSentence));
        SHOAL_ASSIGN(why, wire::decode_sentence(body));
        if (frame->type == MessageType::kRefuse) return Status(ErrorCode::kInvalidArgument, why);
        return Status(ErrorCode::kUnavailable, "the prefill worker ended the handover: " + why);
      }
      case MessageType::kWrite:
        if (!accepted) break;
        rooms_->move_to(id(), RoomState::kTransferring);
        SHOAL_TRY(landing.take(link, *frame, guard()));
        rooms_->touch(id());
        continue;
      case MessageType::kCommit: {
        if (!accepted) break;
        SHOAL_ASSIGN(body, link.receive_body(*frame, kMostCommit));
        SHOAL_ASSIGN(commit, wire::decode_commit(body));
        SHOAL_TRY(landing.check(commit));
        if (commit.first_token < 0 || commit.first_token >= rooms_->engine().description().vocabulary)
          return Status(ErrorCode::kCorrupt, "the prefill worker's first token is not in the vocabulary");
        return commit;
      }
      default:
        break;
    }
    return Status(ErrorCode::kCorrupt, "the prefill worker says what is not due");
  }
}

}  // namespace

Receiver::Receiver(engine::Engine& engine, Options options)
    : ground_(std::make_shared<Ground>(std::move(options))), rooms_(std::make_shared<Rooms>(engine)) {
  ground_->terms = terms_of(engine, ground_->options.build, ground_->options.checksums);
  rooms_->start();
}

Receiver::~Receiver() { rooms_->stop(); }

Expected<std::shared_ptr<engine::Arrival>> Receiver::arrive(RoomId id, Bootstrap prefill) {
  auto room = std::make_shared<ArrivingRoom>(rooms_, ground_, id, std::move(prefill));
  SHOAL_TRY(room->enter());
  return std::shared_ptr<engine::Arrival>(std::move(room));
}

}  // namespace shoal::handover
