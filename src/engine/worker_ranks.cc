#include "engine/worker_ranks.h"

#include <fmt/format.h>

#include <utility>

#include "core/log.h"
#include "wire/step_plan_codec.h"

namespace shoal::engine {
namespace {

using wire::MessageType;

// Between the ranks' parts being loaded and their being ready: pools are mapped, not filled.
constexpr std::chrono::seconds kStartTime{60};
constexpr std::chrono::seconds kFinishTime{5};

}  // namespace

WorkerRanks::WorkerRanks(Options options, comm::Listener listener,
                         std::shared_ptr<const wire::ClusterToken> token)
    : options_(std::move(options)),
      listener_(std::move(listener)),
      token_(std::move(token)),
      join_deadline_(now() + options_.joining.time),
      members_(static_cast<std::size_t>(options_.layout.ranks())) {}

Expected<std::unique_ptr<WorkerRanks>> WorkerRanks::start(Options options) {
  std::shared_ptr<const wire::ClusterToken> token = options.joining.token;
  if (token == nullptr) {
    SHOAL_ASSIGN(drawn, wire::ClusterToken::draw());
    token = std::make_shared<const wire::ClusterToken>(std::move(drawn));
  }
  const comm::Endpoint& asked = options.joining.listen;
  const std::string host = options.joining.from_elsewhere() ? asked.host : "127.0.0.1";
  SHOAL_ASSIGN(listener, comm::Listener::open(host, asked.port));
  comm::Endpoint here{host, listener.port()};
  if (host == "0.0.0.0") here.host = "127.0.0.1";
  if (host == "::") here.host = "::1";
  if (options.joining.from_elsewhere())
    log(LogLevel::kInfo, "ranks.listening", "host={} port={} awaited={}", host, here.port,
        options.layout.ranks() - options.joining.local_ranks);
  std::unique_ptr<WorkerRanks> ranks(
      new WorkerRanks(std::move(options), std::move(listener), std::move(token)));
  ranks->here_ = std::move(here);
  ranks->acceptor_ = std::thread([raw = ranks.get()] { raw->accept(); });
  return ranks;
}

WorkerRanks::~WorkerRanks() {
  std::vector<std::unique_ptr<comm::PulsedLink>> links;
  {
    const std::unique_lock told(telling_);
    const std::lock_guard lock(mutex_);
    closing_ = true;
    for (Member& member : members_) {
      if (member.link != nullptr) links.push_back(std::move(member.link));
    }
  }
  changed_.notify_all();
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

// Places are free once nothing can be reported of who had them.
void WorkerRanks::take_down_lost() {
  std::vector<std::unique_ptr<comm::PulsedLink>> gone;
  {
    const std::unique_lock told(telling_);
    const std::lock_guard lock(mutex_);
    for (Member& member : members_) {
      if (member.state == State::kLost) gone.push_back(std::move(member.link));
    }
  }
  gone.clear();
  const std::lock_guard lock(mutex_);
  for (Member& member : members_) {
    if (member.state != State::kLost || member.link != nullptr) continue;
    add(member.earlier, std::exchange(member.traffic, {}));
    member.state = State::kAbsent;
  }
}

Status WorkerRanks::begin_epoch(Epoch epoch) {
  take_down_lost();
  std::vector<comm::PulsedLink*> here;
  std::vector<std::int32_t> to_launch;
  {
    const std::lock_guard lock(mutex_);
    first_epoch_ = epoch_.value == 0;
    epoch_ = epoch;
    failed_ = {};
    serving_ = false;
    join_deadline_ = now() + options_.joining.time;
    for (std::size_t rank = 1; rank < members_.size(); ++rank) {
      Member& member = members_[rank];
      if (member.state == State::kLost) {
        failed_ = Status(ErrorCode::kUnavailable, fmt::format("{} was lost", member.name));
      } else if (member.link != nullptr) {
        member.state = State::kLoading;
        here.push_back(member.link.get());
      } else if (member.state == State::kAbsent && launched(rank)) {
        to_launch.push_back(static_cast<std::int32_t>(rank));
      }
    }
  }
  changed_.notify_all();
  // What cannot be sent is reported by the link's own end. Links go only here and in the destructor.
  for (comm::PulsedLink* link : here) (void)link->send(MessageType::kReset, wire::encode_epoch(epoch));
  for (const std::int32_t rank : to_launch) SHOAL_TRY(options_.launcher->launch(here_, *token_, rank));
  return {};
}

void WorkerRanks::take_frame(std::int32_t rank, comm::ControlFrame frame) {
  if (const Status status = frame_taken(rank, frame); !status.ok()) fail(rank, status);
}

Status WorkerRanks::frame_taken(std::int32_t rank, const comm::ControlFrame& frame) {
  const auto index = static_cast<std::size_t>(rank);
  if (frame.type == MessageType::kProgress) return wire::decode_progress(frame.body).status();
  if (frame.type == MessageType::kResult) {
    {
      // Before it is ready again a rank may still answer plans of the last epoch.
      const std::lock_guard lock(mutex_);
      if (members_[index].state != State::kReady) return {};
    }
    SHOAL_ASSIGN(result, wire::decode_step_result(frame.body));
    options_.result(std::move(result));
    return {};
  }
  if (frame.type == MessageType::kWord) {
    {
      const std::lock_guard lock(mutex_);
      const State state = members_[index].state;
      if (state != State::kStarting && state != State::kReady) return {};
    }
    if (options_.word) options_.word(rank, frame.body);
    return {};
  }
  if (frame.type == MessageType::kTraffic) {
    SHOAL_ASSIGN(message, wire::decode_traffic(frame.body));
    SHOAL_ASSIGN(totals, totals_of(message));
    const std::lock_guard lock(mutex_);
    members_[index].traffic = totals;
    return {};
  }
  if (frame.type == MessageType::kFailed) {
    SHOAL_ASSIGN(failed, wire::decode_failed(frame.body));
    {
      const std::lock_guard lock(mutex_);
      if (failed.epoch != epoch_) return {};
    }
    fail(rank, {ErrorCode::kUnavailable, failed.sentence});
    return {};
  }
  const std::lock_guard lock(mutex_);
  Member& member = members_[index];
  if (frame.type == MessageType::kLoaded) {
    SHOAL_ASSIGN(loaded, wire::decode_loaded(frame.body));
    if (loaded.epoch != epoch_) return {};
    if (member.state == State::kLoading) {
      member.loaded = std::move(loaded);
      member.state = State::kLoaded;
      changed_.notify_all();
      return {};
    }
  } else if (frame.type == MessageType::kReady) {
    SHOAL_ASSIGN(epoch, wire::decode_epoch(frame.body));
    if (epoch != epoch_) return {};
    if (member.state == State::kStarting) {
      member.state = State::kReady;
      changed_.notify_all();
      return {};
    }
  }
  return {ErrorCode::kCorrupt,
          fmt::format("it sent message {}, which was not due", static_cast<int>(frame.type))};
}

void WorkerRanks::fail(std::int32_t rank, const Status& status) {
  end_epoch(rank, status, std::unique_lock(mutex_));
}

void WorkerRanks::lose(std::int32_t rank, const Status& status) {
  std::unique_lock lock(mutex_);
  Member& member = members_[static_cast<std::size_t>(rank)];
  member.state = State::kLost;
  if (closing_) return;
  log(LogLevel::kWarn, "rank.lost", "rank={} pid={} epoch={} reason=\"{}\"", rank, member.pid, epoch_.value,
      status.message());
  // Under the same lock: an epoch that has not failed has lost nobody.
  end_epoch(rank, status, std::move(lock));
}

void WorkerRanks::end_epoch(std::int32_t rank, const Status& status, std::unique_lock<std::mutex> lock) {
  if (closing_ || !failed_.ok()) return;
  const Status failure(
      ErrorCode::kUnavailable,
      fmt::format("{}: {}", members_[static_cast<std::size_t>(rank)].name, status.message()));
  failed_ = failure;
  std::function<void(Status)> report = options_.in_vain;
  if (std::exchange(serving_, false)) report = options_.lost;
  lock.unlock();
  changed_.notify_all();
  if (report) report(failure);
}

void WorkerRanks::cancel() {
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
  }
  changed_.notify_all();
}

Status WorkerRanks::status() const {
  const std::lock_guard lock(mutex_);
  return failed_;
}

std::vector<std::string> WorkerRanks::hosts() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> hosts = {options_.joining.host};
  for (std::size_t rank = 1; rank < members_.size(); ++rank) hosts.push_back(members_[rank].host);
  return hosts;
}

std::vector<RankReport> WorkerRanks::reports() const {
  static constexpr const char* kNames[] = {"absent",   "joining", "loading", "loaded",
                                           "starting", "ready",   "lost"};
  const std::lock_guard lock(mutex_);
  std::vector<RankReport> reports(members_.size());
  for (std::size_t rank = 0; rank < members_.size(); ++rank) {
    const Member& member = members_[rank];
    RankReport& report = reports[rank];
    report.rank = static_cast<std::int32_t>(rank);
    report.state = kNames[static_cast<std::size_t>(member.state)];
    report.host = member.host;
    report.pid = member.pid;
    report.traffic = member.earlier;
    add(report.traffic, member.traffic);
  }
  reports.front().host = options_.joining.host;
  reports.front().traffic = totals_of(ledger_);
  return reports;
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
  return fmt::format("{} of {} ranks joined within {:g} s; missing: {}", came, members_.size() - 1,
                     std::chrono::duration<double>(options_.joining.time).count(), missing);
}

Status WorkerRanks::await_all(State state) {
  const TimePoint deadline = state == State::kReady ? now() + kStartTime : TimePoint::max();
  std::unique_lock lock(mutex_);
  for (;;) {
    if (cancelled_) return {ErrorCode::kCancelled, "the worker is being stopped"};
    if (!failed_.ok()) return failed_;
    bool all = true, anyone_absent = false, own_absent = false;
    for (std::size_t rank = 1; rank < members_.size(); ++rank) {
      all &= members_[rank].state >= state && members_[rank].state != State::kLost;
      anyone_absent |= members_[rank].state == State::kAbsent;
      own_absent |= members_[rank].state == State::kAbsent && launched(rank);
    }
    if (all) return {};
    if ((first_epoch_ ? anyone_absent : own_absent) && now() >= join_deadline_)
      return {ErrorCode::kDeadline, absent()};
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

void WorkerRanks::dismiss(std::int32_t rank, const std::string& sentence) {
  comm::PulsedLink* link = nullptr;
  {
    const std::lock_guard lock(mutex_);
    Member& member = members_[static_cast<std::size_t>(rank)];
    if (member.state != State::kLoaded) return;
    member.state = State::kLost;
    link = member.link.get();
  }
  (void)link->send(MessageType::kRefuse, wire::encode_sentence(sentence));
}

Status WorkerRanks::send_start(const wire::Start& start) {
  const std::vector<std::byte> body = wire::encode(start);
  std::vector<comm::PulsedLink*> links;
  {
    const std::lock_guard lock(mutex_);
    if (!failed_.ok()) return failed_;
    for (std::size_t rank = 1; rank < members_.size(); ++rank) {
      Member& member = members_[rank];
      if (member.state != State::kLoaded)
        return {ErrorCode::kUnavailable, fmt::format("rank {} is not loaded", rank)};
      member.state = State::kStarting;
      links.push_back(member.link.get());
    }
  }
  for (comm::PulsedLink* link : links) SHOAL_TRY(link->send(MessageType::kStart, body));
  return {};
}

Status WorkerRanks::await_ready() {
  SHOAL_TRY(await_all(State::kReady));
  const std::lock_guard lock(mutex_);
  serving_ = failed_.ok();
  return failed_;
}

Status WorkerRanks::tell(std::int32_t rank, std::span<const std::byte> word) {
  const std::shared_lock told(telling_);
  comm::PulsedLink* link = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const Member& member = members_[static_cast<std::size_t>(rank)];
    if (member.state == State::kReady) link = member.link.get();
  }
  if (link == nullptr) return {ErrorCode::kUnavailable, fmt::format("rank {} is not serving", rank)};
  return link->send(MessageType::kWord, word);
}

void WorkerRanks::broadcast(const StepPlan& plan) {
  const std::vector<std::byte> body = wire::encode(plan);
  // Links and hosts change only between epochs, when nobody broadcasts: no lock is needed to use them.
  for (std::size_t rank = 1; rank < members_.size(); ++rank) {
    const Member& member = members_[rank];
    const Status sent = member.link->send(MessageType::kPlan, body);
    if (!sent.ok()) {
      fail(static_cast<std::int32_t>(rank), sent);
      continue;
    }
    const bool near = member.host == options_.joining.host;
    ledger_.charge(comm::Purpose::kPlan,
                   ControlCharge{near ? comm::Scope::kHost : comm::Scope::kNetwork}.of(body.size()));
  }
}

}  // namespace shoal::engine
