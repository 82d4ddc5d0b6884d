#include "cli/cluster_supervisor.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "wire/tls_context.h"

namespace shoal::cli {
namespace {

constexpr std::chrono::milliseconds kAskEvery{500};
constexpr std::chrono::milliseconds kAnswerTime{2000};
// For ranks, once the server is gone: they notice within 5 s.
constexpr std::chrono::seconds kRankTime{10};
// A start that takes longer says what it waits for.
constexpr std::chrono::seconds kSilentStart{10};
constexpr int kUsage = 2;
constexpr int kNotStarted = 127;

// "error.message" of an answer.
std::string sentence_of(const std::string& body) {
  const auto parsed = nlohmann::json::parse(body, nullptr, false);
  if (!parsed.is_object() || !parsed.contains("error") || !parsed["error"].is_object())
    return "it is not healthy";
  return parsed["error"].value("message", "it is not healthy");
}

std::string text_of(const wire::Url& url) {
  return fmt::format("http{}://{}", url.tls ? "s" : "", url.authority());
}

std::string health_url(const ClusterFile& cluster) {
  if (!cluster.health.empty()) return cluster.health;
  std::string host = cluster.gateway ? cluster.gateway->host : cluster.host;
  if (host == "0.0.0.0") host = "127.0.0.1";
  if (host == "::") host = "::1";
  const bool is_v6 = host.find(':') != std::string::npos;
  const auto& flags = cluster.gateway ? cluster.gateway->flags : cluster.flags;
  return fmt::format("http{}://{}:{}/health", serves_tls(flags) ? "s" : "", is_v6 ? "[" + host + "]" : host,
                     cluster.gateway ? cluster.gateway->port : cluster.port);
}

}  // namespace

const char* name_of(ClusterState state) {
  static constexpr const char* kNames[] = {"starting", "ready", "degraded", "down"};
  return kNames[static_cast<std::size_t>(state)];
}

ClusterSupervisor::ClusterSupervisor(const ClusterFile& cluster, wire::Url health,
                                     std::shared_ptr<wire::TlsContext> tls, Say say)
    : health_(std::move(health)),
      health_is_ours_(cluster.health.empty()),
      drain_(cluster.drain_seconds),
      say_(std::move(say)),
      client_(std::make_unique<wire::HttpClient>(std::move(tls))) {}

Expected<ClusterSupervisor> ClusterSupervisor::make(const ClusterFile& cluster, const std::string& shoal,
                                                    Say say) {
  auto health = wire::Url::parse(health_url(cluster));
  if (!health.ok())
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("{}: 'health': {}", cluster.file.string(), health.error().message()));
  std::shared_ptr<wire::TlsContext> tls;
  if (!cluster.ca_file.empty()) {
    auto trusted = wire::TlsContext::for_client(cluster.ca_file);
    if (!trusted.ok())
      return Status(ErrorCode::kInvalidArgument,
                    fmt::format("{}: 'ca_file': {}", cluster.file.string(), trusted.error().message()));
    tls = *std::move(trusted);
  }
  ClusterSupervisor supervisor(cluster, *std::move(health), std::move(tls), std::move(say));
  for (ClusterProcess& process : processes_of(cluster, shoal)) {
    supervisor.servers_ += process.kind == ClusterProcess::Kind::kServer ? 1 : 0;
    supervisor.gateway_ |= process.kind == ClusterProcess::Kind::kGateway;
    supervisor.processes_.emplace_back(std::move(process.name), cluster.logs / process.log,
                                       std::move(process.command));
  }
  std::string servers;
  if (cluster.prefill > 0)
    servers = fmt::format("{} prefill and {} decode servers with ", cluster.prefill, cluster.decode);
  if (cluster.servers > (cluster.prefill > 0 ? 0 : 1))
    servers = fmt::format("{} servers{}", cluster.servers, servers.empty() ? " with " : ", " + servers);
  supervisor.say_(fmt::format("starting: {}{}{} ranks on {} hosts; logs in {}",
                              cluster.gateway ? "a gateway, " : "", servers, cluster.ranks(),
                              cluster.hosts.size(), cluster.logs.string()));
  return supervisor;
}

std::size_t ClusterSupervisor::running() const {
  return static_cast<std::size_t>(std::ranges::count_if(processes_, &SupervisedProcess::running));
}

void ClusterSupervisor::set_state(ClusterState state, const std::string& why) {
  if (state == state_ && why == why_) return;
  state_ = state;
  why_ = why;
  was_ready_ |= state == ClusterState::kReady;
  say_(fmt::format("{}: {}", name_of(state), why));
}

Status ClusterSupervisor::tick() {
  SHOAL_TRY(look_at_ends());
  if (state_ == ClusterState::kStarting && !begun_) SHOAL_TRY(check_port());
  for (SupervisedProcess& process : processes_) {
    const Status started = process.start_if_due();
    if (started.ok()) continue;
    if (!was_ready_) return started;
    say_(started.message());
  }
  if ((gateway_ ? processes_.back() : processes_.front()).running() && now() >= next_question_) {
    next_question_ = now() + kAskEvery;
    ask_health();
  }
  return {};
}

Status ClusterSupervisor::look_at_ends() {
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    const auto end = processes_[i].ended();
    if (!end) continue;
    const bool hopeless = is_server(i) || is_gateway(i) || end->code == kUsage || end->code == kNotStarted;
    if (!was_ready_ && hopeless) {
      set_state(ClusterState::kDown, end->sentence);
      return {ErrorCode::kUnavailable, end->sentence};
    }
    const std::string again = end->pause > 0 ? fmt::format("again in {} s", end->pause) : "started again";
    // Where several serve, the gateway says what is left of them.
    if (is_gateway(i) || (is_server(i) && servers_ == 1)) {
      set_state(ClusterState::kDown, fmt::format("{}; {}", end->sentence, again));
    } else {
      say_(fmt::format("{}; {}", end->sentence, again));
    }
  }
  return {};
}

// Before anything is started: who answers there now is somebody else, and would be taken for the server.
Status ClusterSupervisor::check_port() {
  begun_ = now();
  if (!health_is_ours_ || !ask().ok()) return {};
  return {ErrorCode::kUnavailable,
          fmt::format("{} answers already: the port is another server's", text_of(health_))};
}

Expected<wire::HttpAnswer> ClusterSupervisor::ask() {
  wire::HttpCall call;
  call.url = health_;
  call.connect_timeout = call.idle_timeout = call.deadline = kAnswerTime;
  return client_->send(std::move(call), 64 * 1024);
}

void ClusterSupervisor::ask_health() {
  const auto answer = ask();
  if (answer.ok() && answer->status == 200) {
    heard(*answer);
  } else if (was_ready_) {
    // A server that is being started again does not answer for a while.
    if (!answer.ok() && state_ == ClusterState::kDown) return;
    set_state(ClusterState::kDegraded, answer.ok()
                                           ? sentence_of(answer->body)
                                           : "the server does not answer: " + answer.error().message());
  } else if (now() >= *begun_ + kSilentStart) {
    set_state(ClusterState::kStarting,
              fmt::format("{}: {}", text_of(health_),
                          answer.ok() ? sentence_of(answer->body) : answer.error().message()));
  }
}

// It is well. A gateway also says how many of its servers are.
void ClusterSupervisor::heard(const wire::HttpAnswer& answer) {
  const auto body = nlohmann::json::parse(answer.body, nullptr, false);
  const bool counts = gateway_ && body.is_object() && body.contains("workers") &&
                      body["workers"].is_number() && body.contains("available") &&
                      body["available"].is_number();
  if (!counts || body["available"] == body["workers"]) {
    set_state(ClusterState::kReady, text_of(health_));
  } else if (was_ready_) {
    set_state(ClusterState::kDegraded, fmt::format("{} of {} servers serve", body["available"].get<int>(),
                                                   body["workers"].get<int>()));
  }
}

bool ClusterSupervisor::end(SupervisedProcess& process, const std::function<bool()>& hurry) {
  process.signal(SIGTERM);
  const TimePoint drained =
      now() + std::chrono::duration_cast<Clock::duration>(drain_) + std::chrono::seconds(15);
  while (!process.wait(now() + std::chrono::milliseconds(100))) {
    if (now() < drained && !hurry()) continue;
    process.signal(SIGKILL);
    process.wait(now() + kRankTime);
    return false;
  }
  return true;
}

bool ClusterSupervisor::stop(const std::function<bool()>& hurry) {
  bool clean = true;
  // Servers finish what the gateway lets finish.
  if (gateway_) clean &= end(processes_.back(), hurry);
  for (std::size_t i = 0; i < servers_; ++i) processes_[i].signal(SIGTERM);
  for (std::size_t i = 0; i < servers_; ++i) clean &= end(processes_[i], hurry);
  // Ranks that served leave with it; those that wait for it have not heard.
  const TimePoint leaving = now() + (was_ready_ ? kRankTime / 2 : std::chrono::seconds(0));
  for (SupervisedProcess& rank : processes_) {
    if (!rank.wait(leaving)) rank.signal(SIGTERM);
  }
  const TimePoint deadline = now() + kRankTime / 2;
  for (SupervisedProcess& rank : processes_) {
    if (rank.wait(deadline)) continue;
    rank.signal(SIGKILL);
    clean = false;
    rank.wait(now() + kRankTime);
  }
  return clean;
}

}  // namespace shoal::cli
