#include "engine/worker_ranks.h"

#include <fmt/format.h>

#include <utility>

#include "core/log.h"
#include "wire/step_plan_codec.h"

namespace shoal::engine {
namespace {

using wire::MessageType;

constexpr std::chrono::seconds kOpeningTime{5};
constexpr std::chrono::seconds kJoinTime{60};
constexpr std::size_t kMostOpenings = 64;
// Between the ranks' parts being loaded and their being ready: pools are mapped, not filled.
constexpr std::chrono::seconds kStartTime{60};
constexpr std::chrono::seconds kFinishTime{5};

}  // namespace

WorkerRanks::WorkerRanks(Options options, comm::Listener listener, wire::ClusterToken token)
    : options_(std::move(options)),
      listener_(std::move(listener)),
      token_(std::move(token)),
      join_deadline_(now() + kJoinTime),
      members_(static_cast<std::size_t>(options_.layout.ranks())) {}

Expected<std::unique_ptr<WorkerRanks>> WorkerRanks::start(Options options) {
  SHOAL_ASSIGN(token, wire::ClusterToken::draw());
  SHOAL_ASSIGN(listener, comm::Listener::open("127.0.0.1", 0));
  const comm::Endpoint here{"127.0.0.1", listener.port()};
  std::unique_ptr<WorkerRanks> ranks(
      new WorkerRanks(std::move(options), std::move(listener), std::move(token)));
  ranks->acceptor_ = std::thread([raw = ranks.get()] { raw->accept(); });
  for (std::int32_t rank = 1; rank < ranks->options_.layout.ranks(); ++rank)
    SHOAL_TRY(ranks->options_.launcher->launch(here, ranks->token_, rank));
  return ranks;
}

WorkerRanks::~WorkerRanks() {
  std::vector<std::unique_ptr<comm::PulsedLink>> links;
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    for (Member& member : members_) {
      if (member.link != nullptr) links.push_back(std::move(member.link));
    }
  }
  listener_.shut_down();
  if (acceptor_.joinable()) acceptor_.join();
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return openings_ == 0; });  // each ends by its own deadline
    for (Member& member : members_) {
      if (member.link != nullptr) links.push_back(std::move(member.link));
    }
  }
  // A rank that is told to stop ends as soon as it looks up; one that does not listen sees the link close.
  for (const auto& link : links) (void)link->send(MessageType::kStop);
  options_.launcher->finish(now() + kFinishTime);
  links.clear();
}

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
    std::thread([this, taken = *std::move(socket)]() mutable {
      admit(std::move(taken));
      const std::lock_guard done(mutex_);
      --openings_;
      changed_.notify_all();
    }).detach();
  }
}

void WorkerRanks::admit(comm::Socket socket) {
  const TimePoint deadline = now() + kOpeningTime;
  const auto turned_away = [](const Status& status) {
    log(LogLevel::kWarn, "ranks.stranger", "reason=\"{}\"", status.message());
  };
  if (const Status opened = comm::open_as_callee(socket, token_, wire::LinkPurpose::kControl, deadline);
      !opened.ok())
    return turned_away(opened);
  auto link = std::make_unique<comm::ControlLink>(std::move(socket));
  auto frame = link->receive(deadline);
  if (!frame.ok()) return turned_away(frame.error());
  auto join = frame->type == MessageType::kJoin
                  ? wire::decode_join(frame->body)
                  : Expected<wire::Join>(ErrorCode::kCorrupt, "it does not ask to join");
  if (!join.ok()) return turned_away(join.error());
  auto rank = seat(*join);
  if (!rank.ok()) {
    (void)link->send(MessageType::kRefuse, wire::encode_sentence(rank.error().message()));
    // Until it hangs up: closing with its beats unread would take the sentence back.
    for (int i = 0; i < 4 && link->receive(now() + std::chrono::seconds(1)).ok();) ++i;
    return turned_away(rank.error());
  }
  wire::Assign assign = options_.assign;
  assign.rank = *rank;
  (void)link->send(MessageType::kAssign, wire::encode(assign));
  const std::int32_t index = *rank;
  const std::lock_guard lock(mutex_);
  Member& member = members_[static_cast<std::size_t>(index)];
  member.name = fmt::format("rank {} (process {})", index, join->pid);
  member.state = State::kLoading;
  member.link = std::make_unique<comm::PulsedLink>(
      std::move(link), [this, index](comm::ControlFrame got) { take_frame(index, std::move(got)); },
      [this, index](const Status& status) { fail(index, status); });
  changed_.notify_all();
}

// Which number a rank gets.
Expected<std::int32_t> WorkerRanks::seat(const wire::Join& join) {
  const auto refused = [](std::string sentence) {
    return Status(ErrorCode::kInvalidArgument, std::move(sentence));
  };
  if (join.build != options_.build)
    return refused(fmt::format("a rank of build {} cannot join a head of build {}: install the same",
                               join.build, options_.build));
  if (join.host != options_.host)
    return refused(fmt::format("a rank of host {} cannot share memory with a head of host {}", join.host,
                               options_.host));
  const std::lock_guard lock(mutex_);
  const auto ranks = static_cast<std::int32_t>(members_.size());
  if (join.rank == 0 || join.rank >= ranks)
    return refused(fmt::format("there is no rank {} to join as: the layout {} has ranks 1 to {}", join.rank,
                               options_.layout.to_string(), ranks - 1));
  if (join.rank > 0 && members_[static_cast<std::size_t>(join.rank)].state != State::kAbsent)
    return refused(fmt::format("rank {} has joined already: two ranks have one number", join.rank));
  for (std::int32_t rank = join.rank > 0 ? join.rank : 1; rank < ranks; ++rank) {
    Member& member = members_[static_cast<std::size_t>(rank)];
    if (member.state != State::kAbsent) continue;
    member.state = State::kJoining;
    return rank;
  }
  return refused(
      fmt::format("all {} ranks of the layout {} have joined", ranks, options_.layout.to_string()));
}

void WorkerRanks::take_frame(std::int32_t rank, comm::ControlFrame frame) {
  if (const Status status = frame_taken(rank, frame); !status.ok()) fail(rank, status);
}

Status WorkerRanks::frame_taken(std::int32_t rank, const comm::ControlFrame& frame) {
  if (frame.type == MessageType::kResult) {
    SHOAL_ASSIGN(result, wire::decode_step_result(frame.body));
    options_.result(std::move(result));
    return {};
  }
  if (frame.type == MessageType::kFailed) {
    SHOAL_ASSIGN(sentence, wire::decode_sentence(frame.body));
    return {ErrorCode::kUnavailable, sentence};
  }
  if (frame.type == MessageType::kProgress) return {};
  const std::lock_guard lock(mutex_);
  Member& member = members_[static_cast<std::size_t>(rank)];
  if (frame.type == MessageType::kLoaded && member.state == State::kLoading) {
    SHOAL_ASSIGN(loaded, wire::decode_loaded(frame.body));
    member.loaded = std::move(loaded);
    member.state = State::kLoaded;
  } else if (frame.type == MessageType::kReady && member.state == State::kStarting) {
    member.state = State::kReady;
  } else {
    return {ErrorCode::kCorrupt,
            fmt::format("it sent message {}, which was not due", static_cast<int>(frame.type))};
  }
  changed_.notify_all();
  return {};
}

void WorkerRanks::fail(std::int32_t rank, const Status& status) {
  std::function<void(Status)> report;
  Status failure;
  {
    const std::lock_guard lock(mutex_);
    if (closing_ || !failed_.ok()) return;
    failure = Status(ErrorCode::kUnavailable,
                     fmt::format("{}: {}", members_[static_cast<std::size_t>(rank)].name, status.message()));
    failed_ = failure;
    if (serving_) report = options_.lost;
  }
  changed_.notify_all();
  if (report) report(failure);
}

std::string WorkerRanks::absent() const {
  std::string missing;
  std::int32_t came = 0;
  for (std::size_t rank = 1; rank < members_.size(); ++rank) {
    if (members_[rank].state != State::kAbsent) {
      ++came;
    } else {
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", rank);
    }
  }
  return fmt::format("{} of {} ranks joined within {} s; missing: {}", came, members_.size() - 1,
                     kJoinTime.count(), missing);
}

Status WorkerRanks::await_all(State state) {
  const TimePoint deadline = state == State::kReady ? now() + kStartTime : TimePoint::max();
  std::unique_lock lock(mutex_);
  for (;;) {
    if (!failed_.ok()) return failed_;
    bool all = true, anyone_absent = false;
    for (std::size_t rank = 1; rank < members_.size(); ++rank) {
      all &= members_[rank].state >= state;
      anyone_absent |= members_[rank].state == State::kAbsent;
    }
    if (all) return {};
    if (anyone_absent && now() >= join_deadline_) return {ErrorCode::kDeadline, absent()};
    if (now() >= deadline)
      return {ErrorCode::kDeadline,
              fmt::format("the ranks did not become ready within {} s", kStartTime.count())};
    if (anyone_absent) {
      lock.unlock();
      const auto ended = options_.launcher->ended();
      lock.lock();
      if (ended) return {ErrorCode::kUnavailable, *ended};
    }
    changed_.wait_for(lock, std::chrono::milliseconds(100));
  }
}

Expected<std::vector<wire::Loaded>> WorkerRanks::await_loaded() {
  SHOAL_TRY(await_all(State::kLoaded));
  const std::lock_guard lock(mutex_);
  std::vector<wire::Loaded> loaded;
  for (const Member& member : members_) loaded.push_back(member.loaded);
  return loaded;
}

Status WorkerRanks::begin(const wire::Start& start) {
  const std::vector<std::byte> body = wire::encode(start);
  for (std::size_t rank = 1; rank < members_.size(); ++rank) {
    comm::PulsedLink* link = nullptr;
    {
      const std::lock_guard lock(mutex_);
      members_[rank].state = State::kStarting;
      link = members_[rank].link.get();
    }
    SHOAL_TRY(link->send(MessageType::kStart, body));
  }
  return {};
}

Status WorkerRanks::await_ready() {
  SHOAL_TRY(await_all(State::kReady));
  const std::lock_guard lock(mutex_);
  serving_ = failed_.ok();
  return failed_;
}

void WorkerRanks::broadcast(const StepPlan& plan) {
  const std::vector<std::byte> body = wire::encode(plan);
  // Links are made before serving and go with this object: no lock is needed to use them.
  for (std::size_t rank = 1; rank < members_.size(); ++rank) {
    const Status sent = members_[rank].link->send(MessageType::kPlan, body);
    if (!sent.ok()) fail(static_cast<std::int32_t>(rank), sent);
  }
}

}  // namespace shoal::engine
